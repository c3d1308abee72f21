"""The loops of a node, each a step over the ledger, and the runners that execute what they claim."""
