"""How tables are created in a database, and the tables of effects. Used by ledger and fence."""
