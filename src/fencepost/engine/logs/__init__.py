"""The log of every run: what an attempt wrote, from the pipe of its worker to rows of the ledger."""
