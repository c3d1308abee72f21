"""Leases: the store contract, the keeper that renews, locks and elections on top."""
