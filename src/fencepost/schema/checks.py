"""How PostgreSQL recognizes a fenced transaction: the setting at its start, and the error of a failed check."""

MARK, BEGUN = "fencepost.transaction", "begun"
NOT_OURS = "FP001"
"""The SQLSTATE that the check procedures raise."""
