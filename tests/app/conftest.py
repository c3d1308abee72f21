"""A ledger with its tables on each database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.ledger.ledger import Ledger
from fencepost.ledger.migrations import migrate
from tests.ledger.conftest import bare_url, kind, mariadb, opened, postgres

__all__ = ["bare_url", "kind", "mariadb", "opened", "postgres"]


@pytest.fixture
def ledger(bare_url: str, opened: Callable[[str], Ledger]) -> Ledger:
    ledger = opened(bare_url)
    migrate(ledger)
    return ledger


@pytest.fixture
def url(ledger: Ledger) -> str:
    """The URL of a ledger that has its tables."""
    return ledger.url.text
