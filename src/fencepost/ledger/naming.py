"""The names of this ledger's rows in a database of effects.

Several ledgers may write to one database of effects. Ids of runs and names of jobs start over in each ledger, so names
that are derived from them contain the beginning of the ledger's identity::

    ledger:<ledger>:<key>                       a fence: job:<name>, or a declared `exclusive` key
    ledger:<ledger>/run:<id>                    the fence of a run without one; twelve digits: old ones sort first
    bulk:<job>@<ledger>:<instance>/<step>       a checkpoint of bulk work
    "ledger" in a dead letter                   the ledger of the run that it came from

Names longer than 191 characters, which every database can index, keep their beginning, and a hash replaces the rest
(`core.identity.fitted`). Names that users choose (`run.once`, `idempotent`, `Sequence`, locks) are never changed: they
have to be the same across programs, copies and moves.

**Older versions** use the names without the identity. While a node of such a version is alive, or was within the last
day (it may have left a stale writer), *both* names are used: both fences are raised and compared, and new bulk work
starts under the old name, which the older nodes can find. Checkpoints are looked up under both names in every ledger
that ever had such a node; `nameless_until` in its table `identity` records that.

**Not promised.** That a node of an older version, started after a day without any such node, finds bulk work that was
started in between: it would start that work again. Before you go back to an older version, let bulk runs end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import case, delete, func, literal, select, update

from fencepost.errors import LedgerUnavailable
from fencepost.ledger.identity import identity
from fencepost.schema.revisions import known_by

if TYPE_CHECKING:
    from fencepost.ledger.database import Database
    from fencepost.ledger.dialects import Cursor

STEP = 4  # nodes that know this migration step use these names
_LENGTH = 12  # of the identity: 48 random bits distinguish the few ledgers that share a database
_ASKED_EVERY_S = 5.0  # how late a node of another version is noticed; both names are good meanwhile
_STALE_FOR_US = 24 * 3600 * 1_000_000  # how long a writer of an ended node may still be running
_BATCH = 500  # parameters per statement stay below every driver's limit
_NOTED_EVERY_US = 3600 * 1_000_000  # a write an hour while older nodes live; the day after them may end an hour early


class Naming(NamedTuple):
    """How names are formed. `is_mixed`: nodes that use the old names are alive, or were within the last day.

    `nameless_until` is when such a node was last known to be alive; None if never.
    """

    ledger: str
    is_mixed: bool = False
    nameless_until: int | None = None

    def fence(self, key: str) -> str:
        """Return the key of a fence in a database of effects."""
        return f"ledger:{self.ledger}:{key}"

    def run_fence(self, run_id: int) -> str:
        """Return the key of the fence of a run without an exclusive key."""
        return f"{self.run_fences}{run_id:012}"

    @property
    def run_fences(self) -> str:
        """The prefix of the keys of all such fences; by itself, the key of their floor."""
        return f"ledger:{self.ledger}/run:"  # no declared key can begin like this: those come after a colon

    def instance(self, name: str) -> str:
        """Return the name of an instance of bulk work, as used in the names of its checkpoints."""
        return f"{self.ledger}:{name}"


def short(ledger: str) -> str:
    """Return the beginning of a ledger's identity, which distinguishes it from others that share a database."""
    return ledger[:_LENGTH]


def without_ledger(label: str) -> str:
    """Return the name of an instance without its ledger."""
    return label.rpartition(":")[2]


def ledger_in(label: str) -> str:
    """Return the ledger in the name of an instance; empty if there is none."""
    return label.rpartition(":")[0]


def naming(database: Database) -> Naming:
    """Return how names are formed now. Cached for a few seconds; longer while the ledger is unavailable."""
    known, now = database.known_naming, database.runtime.monotonic()
    if known is not None and now < known[0]:
        return known[1]
    try:
        found = _read_naming(database)
    except LedgerUnavailable:
        if known is None:
            raise
        found = known[1]
    database.known_naming = (now + _ASKED_EVERY_S, found)
    return found


def _read_naming(database: Database) -> Naming:
    ledger = short(identity(database))
    noted, seen, now_us = database.read(lambda cursor: _read(cursor, database))
    until = max((each for each in (noted, seen) if each is not None), default=None)
    is_noted = seen is None or (noted is not None and noted + _NOTED_EVERY_US >= seen)
    if seen is not None and not is_noted and database.held_by is None:  # otherwise a later call notes it
        database.write(lambda cursor: _note(cursor, database, seen))
    return Naming(ledger, until is not None and until + _STALE_FOR_US > now_us, until)


def _read(cursor: Cursor, database: Database) -> tuple[int | None, int | None, int]:
    """Return until when nodes of older versions were alive, as noted and as the nodes' rows say; and the time now."""
    now_us = database.dialect.now_us(cursor)
    noted = database.rows(cursor, select(database.tables.identity.c.nameless_until))
    c = database.tables.node.c
    is_over = case((c.left_at.is_(None) & c.dead_at.is_(None), None), else_=func.coalesce(c.dead_at, c.left_at))
    query = select(c.version, func.count(), func.count(is_over), func.max(is_over)).group_by(c.version)
    ends = [
        now_us if ended < count else int(last)
        for version, count, ended, last in database.rows(cursor, query)
        if known_by(version) < STEP
    ]
    return (noted[0][0] if noted else None), max(ends, default=None), now_us


def forget_nameless(database: Database, cursor: Cursor) -> None:
    """Remove the nodes of older versions from a copy: they, and the names they use, belong to the original.

    If one of them works on the copy nevertheless, it finds that its row is gone, and joins again.
    """
    c = database.tables.node.c
    nodes = database.rows(cursor, select(c.id, c.version))
    older = [node_id for node_id, version in nodes if known_by(version) < STEP]
    for start in range(0, len(older), _BATCH):
        database.change(cursor, delete(database.tables.node).where(c.id.in_(older[start : start + _BATCH])))


def _note(cursor: Cursor, database: Database, until_us: int) -> None:
    table = database.tables.identity
    is_less = table.c.nameless_until.is_(None) | (table.c.nameless_until < until_us)
    database.change(cursor, update(table).where(is_less).values(nameless_until=until_us))


def run_floor(database: Database) -> int:
    """Return a token that is below those of all current runs without an exclusive key: a day ago, or lower.

    Runs that are claimed later have a higher one, unless the ledger's clock goes back by more than that day.
    """
    c = database.tables.run.c
    query = select(func.min(c.token)).where(
        c.state == literal("running", literal_execute=True), c.exclusive_key.is_(None)
    )

    def work(cursor: Cursor) -> int:
        [(oldest,)] = database.rows(cursor, query)
        day_ago = database.dialect.now_us(cursor) - _STALE_FOR_US
        return day_ago if oldest is None else min(day_ago, int(oldest))

    return database.read(work)
