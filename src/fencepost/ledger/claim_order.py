"""The order in which due runs are claimed: the most urgent first, then the one due first, then the oldest.

It stands here once, for all databases. From it come the ORDER BY of claims, the values by which Python sorts what
several queries found together, and the index that claims read (`tables`; a new order needs a step that makes the new
index).
"""

from __future__ import annotations

CLAIM_ORDER = ("-priority", "available_at", "id")
"""Columns of `run` that hold numbers. A minus sign means the greatest first; `id`, as the last, leaves no ties."""

CLAIM_ORDER_COLUMNS = tuple(each.removeprefix("-") for each in CLAIM_ORDER)


def order_by(alias: str) -> str:
    """Return the order as SQL, for an ORDER BY."""
    return ", ".join(
        f"{alias}.{column}{' DESC' if each.startswith('-') else ''}"
        for each, column in zip(CLAIM_ORDER, CLAIM_ORDER_COLUMNS, strict=True)
    )


def ranks(alias: str) -> tuple[str, ...]:
    """Return values, as SQL, of which the smallest come first."""
    return tuple(
        f"{'-' if each.startswith('-') else ''}{alias}.{column}"
        for each, column in zip(CLAIM_ORDER, CLAIM_ORDER_COLUMNS, strict=True)
    )
