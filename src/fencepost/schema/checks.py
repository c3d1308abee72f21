"""How a fenced transaction is known to PostgreSQL: what it sets when it begins, and how its check fails."""

MARK, BEGUN = "fencepost.transaction", "begun"
NOT_OURS = "FP001"
"""The SQLSTATE with which the procedures of checks refuse."""
