"""One file per lease store. Each states its grade and what it does not survive; none knows another."""
