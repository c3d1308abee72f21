"""*Why* against an oracle: what became of each due time is known beforehand, and compared with what the ledger says."""
