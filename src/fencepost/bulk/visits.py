"""Transactions of an operator in a database that bulk jobs write to. They belong to no run, so they have no fence.

They are safe without one: they only read, or change a row by compare-and-set, or are refused while a run that they
affect has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fencepost.core.texts import beginning
from fencepost.errors import FencepostError, LedgerUnavailable
from fencepost.fence.sources import source_of
from fencepost.fence.writer import TablePlace, Writer
from fencepost.sql.troubles import driver_error

if TYPE_CHECKING:
    from fencepost.fence.sources.source import Source
    from fencepost.ledger.ledger import Ledger

_LONGEST_CAUSE = 300  # characters of the driver's error in the sentence; the error itself is chained


def visitor(ledger: Ledger) -> Writer:
    """Return a writer without a run, for the tables that runs of this ledger write to."""
    place = TablePlace(ledger.tables.prefix, ledger.tables.schema)
    return Writer(place, wall_us=ledger.runtime.wall_us)


@contextmanager
def visiting(target: Any) -> Iterator[Any]:
    """Open a transaction in a target, and commit it at the end of the block. `LedgerUnavailable` on database errors."""
    source = source_of(target)
    try:
        source.open()
        try:
            _begin(source)
            yield source.given
            source.commit()
        except BaseException:
            source.roll_back()
            raise
        finally:
            source.close()
    except FencepostError:
        raise
    except Exception as error:
        if not _is_of_database(error):
            raise
        cause = beginning(" ".join(str(driver_error(error)).split()), _LONGEST_CAUSE)
        raise LedgerUnavailable(f"the database that the job writes to cannot be used: {cause}") from error


def _begin(source: Source) -> None:
    source.begin("read committed")
    if source.target.kind == "sqlite" and not source.raw.in_transaction:
        source.target.execute("BEGIN")  # drivers begin only before a write, if at all


def _is_of_database(error: Exception) -> bool:
    kinds = {kind.__name__ for kind in type(driver_error(error)).__mro__}
    return bool(kinds & {"DatabaseError", "InterfaceError", "OperationalError"})
