"""The same ledgers as in the tests of the ledger."""

from tests.ledger.conftest import *  # noqa: F403
