"""What a fenced transaction needs from the user's connection, for every driver.

**Promises.** Closing a source restores the state from before it was opened: isolation level, autocommit, and whether
the connection is open or in its pool. A connection that is already in a transaction is refused when it is opened,
because that transaction could not be fenced from its beginning.

**A commit by the user** inside the block would bypass the fence. `commit()` of SQLAlchemy, psycopg, PyMySQL and
Django is refused. What cannot be refused is detected at the end of the block and raises an error: sqlite3's
`commit()`, a ``COMMIT`` executed as a statement, and on MySQL statements that commit implicitly (such as
``CREATE TABLE``).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from fencepost.fence.target import Target, described

COMMITS_BY_ITSELF = "a fenced transaction commits by itself, at the end of its block, after checking the fence"


class Source(Protocol):
    """Opens a connection, and begins and ends transactions on it. Used once, by one thread."""

    @property
    def given(self) -> Any:
        """What the user gets: an engine's connection, a sessionmaker's session, else the object that was passed in."""
        ...

    @property
    def target(self) -> Target:
        """Executes statements on the connection. Available once the source is open."""
        ...

    @property
    def place(self) -> Hashable | None:
        """Identifies the database among those that this process uses; None if it cannot be identified."""
        ...

    @property
    def is_mariadb(self) -> bool: ...

    @property
    def raw(self) -> Any:
        """The driver's own connection."""
        ...

    def open(self) -> None:
        """Connect. Raise `RuntimeError` if the connection is already in a transaction."""
        ...

    def begin(self, isolation: str) -> None: ...
    def commit(self) -> None: ...

    def roll_back(self) -> None:
        """Roll back, without raising: the transaction of a lost connection is gone as well."""
        ...

    @property
    def ends_with_commit(self) -> bool:
        """Whether a COMMIT sent directly on the driver's connection is enough; `commit` then finds it already done."""
        ...

    def retold(self, error: Exception) -> Exception:
        """Return a driver's error in the form that the user's own statements would raise."""
        ...

    def flush(self) -> None:
        """Send pending changes of an ORM session."""
        ...

    def execute_outside(self, sql: str) -> None:
        """Execute a statement outside a transaction, which changes a setting of the connection."""
        ...

    def close(self) -> None:
        """Restore the previous state."""
        ...


def in_a_transaction(source: Any) -> RuntimeError:
    """Return the error for a connection that cannot be fenced from the beginning."""
    return RuntimeError(
        f"{described(source)} is already in a transaction, which cannot be fenced from its beginning; commit or roll "
        "back first, or pass the engine"
    )


class _Refusal:
    """Replaces a method that would end the transaction, and keeps the instance's own method, if it had one."""

    __slots__ = ("before",)

    def __init__(self, before: Any) -> None:
        self.before = before

    def __call__(self) -> None:
        raise RuntimeError(COMMITS_BY_ITSELF)


def hold(connection: Any, *ends: str) -> None:
    """Refuse methods that would end the transaction without the fence (`commit`, `rollback`), until `release`."""
    own = vars(connection)
    for name in ends:
        before = own.get(name)
        if not isinstance(before, _Refusal):
            own[name] = _Refusal(before)


def release(connection: Any) -> None:
    """Allow commit and rollback again."""
    own = vars(connection)
    for name in ("commit", "rollback"):
        refusal = own.get(name)
        if isinstance(refusal, _Refusal):
            del own[name]
            if refusal.before is not None:
                own[name] = refusal.before
