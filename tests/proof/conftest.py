"""The same ledgers as in the tests of the ledger, to be read as evidence."""

from tests.ledger.conftest import *  # noqa: F403
