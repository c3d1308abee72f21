"""How tables get into a database, and those that any database of effects has: what ledger and fence both stand on."""
