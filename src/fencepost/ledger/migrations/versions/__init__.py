"""One file per step, oldest first. A released step is never changed, because existing databases have run it."""
