"""``fencepost demo``: runs three nodes on SQLite, kills the busiest one, and counts all results independently.

`application` is an ordinary application, `stage` starts and kills its nodes, `watching` reads the runs of each node
from the ledger, `screen` shows them, and `recount` counts what was due and what was written without using the engine.
"""
