"""``fencepost demo``: three nodes on SQLite, of which the busiest is killed; then everything is counted anew.

`application` is an application like any other, `stage` starts and kills its nodes, `watching` reads from the ledger who
runs what, `screen` shows it, and `recount` counts what was due and what was written without asking the engine.
"""
