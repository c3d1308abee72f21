"""The lives of installations: months of virtual time, with deploys, restarts, retention, and people who repeat runs."""
