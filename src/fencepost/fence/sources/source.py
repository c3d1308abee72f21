"""What a fenced transaction needs of the user's connection, whichever driver it is of.

**Promises.** A source that was opened is closed again as it was found: with its isolation, its autocommit, and open or
back in its pool. One that is in a transaction already is refused when it is opened: what happened before could not be
fenced from its beginning.

**A commit by the user**, inside the block, would go past the fence. `commit()` of SQLAlchemy, psycopg, PyMySQL and
Django is refused. What cannot be refused is noticed at the end of the block, and told: sqlite3's `commit()`, a
``COMMIT`` executed as a statement, and on MySQL statements that commit by themselves (``CREATE TABLE`` and the like).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from fencepost.fence.target import Target, described

COMMITS_BY_ITSELF = "a fenced transaction commits by itself, at the end of its block, after asking the fence"


class Source(Protocol):
    """A way to a connection, and to begin and end transactions there. Used by one thread, once."""

    @property
    def given(self) -> Any:
        """What the user gets: the connection of an engine, the session of a sessionmaker, else what was handed in."""
        ...

    @property
    def target(self) -> Target:
        """The connection, to execute statements. There once it is open."""
        ...

    @property
    def place(self) -> Hashable | None:
        """Tells the databases that this process reaches from each other; None if it cannot be told."""
        ...

    @property
    def is_mariadb(self) -> bool: ...

    @property
    def raw(self) -> Any:
        """The driver's own connection."""
        ...

    def open(self) -> None:
        """Connect; a `RuntimeError` says that the connection is in a transaction already."""
        ...

    def begin(self, isolation: str) -> None: ...
    def commit(self) -> None: ...

    def roll_back(self) -> None:
        """Roll back what there is; raises nothing, for a connection that is gone takes its transaction along."""
        ...

    @property
    def ends_with_commit(self) -> bool:
        """Whether a COMMIT that was sent past it is all there is to the end: it finds that itself by `commit`."""
        ...

    def retold(self, error: Exception) -> Exception:
        """Return a driver's error as the user's own statements would have got it."""
        ...

    def flush(self) -> None:
        """Send what is not sent yet (of an ORM's session)."""
        ...

    def execute_outside(self, sql: str) -> None:
        """Execute a statement in no transaction, which sets something for the whole connection."""
        ...

    def close(self) -> None:
        """Put everything back."""
        ...


def in_a_transaction(source: Any) -> RuntimeError:
    """Return the error for a connection that cannot be fenced from the beginning."""
    return RuntimeError(
        f"{described(source)} is in a transaction already, which cannot be fenced from its beginning; commit or roll "
        "back first, or hand over the engine"
    )


class _Refusal:
    """Stands in for what would end a transaction, and knows what stood there before, if anything did."""

    __slots__ = ("before",)

    def __init__(self, before: Any) -> None:
        self.before = before

    def __call__(self) -> None:
        raise RuntimeError(COMMITS_BY_ITSELF)


def hold(connection: Any, *ends: str) -> None:
    """Refuse what would end a driver's transaction past the fence (`commit`, `rollback`), until it is released."""
    own = vars(connection)
    for name in ends:
        before = own.get(name)
        if not isinstance(before, _Refusal):
            own[name] = _Refusal(before)


def release(connection: Any) -> None:
    """Let it commit and roll back again."""
    own = vars(connection)
    for name in ("commit", "rollback"):
        refusal = own.get(name)
        if isinstance(refusal, _Refusal):
            del own[name]
            if refusal.before is not None:
                own[name] = refusal.before
