"""The row of a run as a fence, in the ledger's own database. Taking the run away from its runner changes this row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from fencepost.fence.fence_options import FenceOptions
    from fencepost.fence.sources.source import Source


class Fence(Protocol):
    """A row that must be unchanged for our writes to be accepted."""

    @property
    def table(self) -> str:
        """The full name of its table, of checked identifiers. The table has a column `token`."""
        ...

    @property
    def check(self) -> str:
        """The full name of the PostgreSQL procedure that finds and locks the row, or fails."""
        ...

    @property
    def checks_with_commit(self) -> bool:
        """Whether that procedure compares everything that has to be compared."""
        ...

    @property
    def token(self) -> int: ...

    @property
    def what(self) -> str:
        """Whose fence it is, for error messages."""
        ...

    @property
    def values(self) -> tuple[Any, ...]:
        """The parameters of `query` and of `check`."""
        ...

    def query(self, kind: str) -> str:
        """Return the SQL that finds the row if it is still ours."""
        ...

    @property
    def touch(self) -> str | None:
        """The SQL on MySQL that writes the row if it is still ours; None if that is not possible."""
        ...

    def ready(self, source: Source, terms: FenceOptions, *, anew: bool = False) -> None:
        """Make sure that the fence has our token, before a transaction begins.

        With `anew`, ignore what is remembered of the fence, because it was not ours when it was read.
        """
        ...

    def is_worth_another_look(self) -> bool:
        """Whether calling `ready` again may make a fence ours that was not."""
        ...

    def missing(self, name: str) -> Exception:
        """Return the error for a missing table or procedure."""
        ...


class FencedRun(NamedTuple):
    """The row of one run. `table` and `check` are full names of checked identifiers."""

    table: str
    check: str
    run_id: int
    token: int
    what: str

    @property
    def checks_with_commit(self) -> bool:
        """True: there is only one row."""
        return True

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.run_id, self.token)

    def query(self, kind: str) -> str:
        return f"SELECT 1 FROM {self.table} WHERE id = %s AND token = %s AND state = 'running'"  # noqa: S608 - checked

    @property
    def touch(self) -> None:
        """None: a ledger is never in such a cluster, because the leases beside it are refused there."""

    def ready(self, source: Source, terms: FenceOptions, *, anew: bool = False) -> None:
        """Do nothing: the claim has put our token into the row."""

    def is_worth_another_look(self) -> bool:
        """False: a run that was taken away does not come back."""
        return False

    def missing(self, name: str) -> Exception:
        """Return the error: a database without the table is not the ledger's."""
        return RuntimeError(
            f"there is no {name} in the database of this transaction, so it is not the ledger's database, and the run "
            "cannot be checked there"
        )
