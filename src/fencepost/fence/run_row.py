"""The row of a run as a fence, in the ledger's own database: whoever takes the run away changes it there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from fencepost.fence.fence_options import FenceOptions
    from fencepost.fence.sources.source import Source


class Fence(Protocol):
    """One row that has to stay as it is for our writes to be let through."""

    @property
    def table(self) -> str:
        """Its table: a full name of checked identifiers, with a column `token`."""
        ...

    @property
    def check(self) -> str:
        """The procedure on PostgreSQL that finds the row and locks it, or fails: a full name, as above."""
        ...

    @property
    def checks_with_commit(self) -> bool:
        """Whether that procedure compares all there is to compare."""
        ...

    @property
    def token(self) -> int: ...

    @property
    def what(self) -> str:
        """Names whose fence it is, in a sentence."""
        ...

    @property
    def values(self) -> tuple[Any, ...]:
        """The parameters of `query`, and of `check`."""
        ...

    def query(self, kind: str) -> str:
        """Return the SQL that finds the row if it is still ours."""
        ...

    @property
    def touch(self) -> str | None:
        """The SQL, on MySQL, that writes the row if it is still ours; None where that cannot be."""
        ...

    def ready(self, source: Source, terms: FenceOptions, *, anew: bool = False) -> None:
        """Make sure that the fence stands at our token, before a transaction begins.

        With `anew`, whatever is remembered of it: it was not found to be ours.
        """
        ...

    def is_worth_another_look(self) -> bool:
        """Whether a fence that is not ours may become so by `ready` again."""
        ...

    def missing(self, name: str) -> Exception:
        """Return the error that says that its table or its check is not there."""
        ...


class FencedRun(NamedTuple):
    """Which run has to stay as it is; `table` and `check` are full names of checked identifiers."""

    table: str
    check: str
    run_id: int
    token: int
    what: str

    @property
    def checks_with_commit(self) -> bool:
        """There is one row."""
        return True

    @property
    def values(self) -> tuple[Any, ...]:
        """The parameters of `query`."""
        return (self.run_id, self.token)

    def query(self, kind: str) -> str:
        """Find the row if it is still ours."""
        return f"SELECT 1 FROM {self.table} WHERE id = %s AND token = %s AND state = 'running'"  # noqa: S608 - checked

    @property
    def touch(self) -> None:
        """A ledger is in no such cluster: the leases beside it are refused there."""

    def ready(self, source: Source, terms: FenceOptions, *, anew: bool = False) -> None:
        """The claim has made it so."""

    def is_worth_another_look(self) -> bool:
        """What was taken away stays so."""
        return False

    def missing(self, name: str) -> Exception:
        """Without the table it is not the ledger's database."""
        return RuntimeError(
            f"there is no {name} where this transaction began: that is not the ledger's database, so its run "
            "cannot be compared there"
        )
