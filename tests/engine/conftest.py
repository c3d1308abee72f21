"""The same ledgers as in the tests of the ledger, for the loops that work on them."""

from tests.ledger.conftest import *  # noqa: F403
