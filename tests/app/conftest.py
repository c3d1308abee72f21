"""A ledger with its tables on each database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.ledger.ledger import Ledger
from tests.servers import execute


@pytest.fixture
def ledger(ledger_url: str, kind: str, opened: Callable[[str], Ledger], request: pytest.FixtureRequest) -> Ledger:
    """A ledger with empty tables, and beside them none of the effects that the test before it made."""
    ledger = opened(ledger_url)
    if kind != "sqlite":
        server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
        execute(server, f"DROP TABLE IF EXISTS {ledger.url.prefix}effect")
    return ledger


@pytest.fixture
def url(ledger: Ledger) -> str:
    """The URL of a ledger that has its tables."""
    return ledger.url.text
