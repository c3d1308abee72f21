"""The order in which due runs are claimed: by priority, then by the time they are due, then by id.

This is its only definition, for all databases. It yields the ORDER BY of claims, the values by which Python sorts the
results of several queries, and the index that claims read (see `tables`; a new order needs a migration step that
creates its index).
"""

from __future__ import annotations

CLAIM_ORDER = ("-priority", "available_at", "id")
"""Numeric columns of `run`. A minus sign means descending; `id` comes last and breaks ties."""

CLAIM_ORDER_COLUMNS = tuple(each.removeprefix("-") for each in CLAIM_ORDER)


def order_by(alias: str) -> str:
    """Return the order as SQL, for an ORDER BY."""
    return ", ".join(
        f"{alias}.{column}{' DESC' if each.startswith('-') else ''}"
        for each, column in zip(CLAIM_ORDER, CLAIM_ORDER_COLUMNS, strict=True)
    )


def ranks(alias: str) -> tuple[str, ...]:
    """Return SQL expressions that sort in the same order, all of them ascending."""
    return tuple(
        f"{'-' if each.startswith('-') else ''}{alias}.{column}"
        for each, column in zip(CLAIM_ORDER, CLAIM_ORDER_COLUMNS, strict=True)
    )
