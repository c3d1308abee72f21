"""Waiting, before a node starts, for SQLite files that others write to: in short steps, so that it can be called off.

A call to SQLite is deaf to signals while it waits for a file. So a file is asked for with a short limit, over and over,
and between two questions whoever starts may hear that it is not wanted any more.

**Not promised.** That the file stays free: then the start itself waits, for as long as a call may take.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.core.duration import spelled
from fencepost.core.urls import StoreUrl
from fencepost.errors import LedgerUnavailable
from fencepost.leases.stores.sqlite import lease_file
from fencepost.ledger.urls import LedgerUrl
from fencepost.sql.forked_sqlite import FORKED_SQLITE, Closable
from fencepost.sql.sqlite import ERRORS, opened
from fencepost.sql.troubles import SLOW, trouble_of

if TYPE_CHECKING:
    from fencepost.app.application import App

_ONE_LOOK_S = 0.2
_BETWEEN_S = 0.05


class FreeFiles:
    """The SQLite files of an application, if it has any: the ledger's, and those of leases."""

    def __init__(self, app: App) -> None:
        self._runtime = app.runtime
        self._opened: list[Closable] = []
        url, leases = LedgerUrl.parse(app.settings.url), app.settings.leases  # the ledger itself is opened by the start
        self._timeout_s = url.timeout_s
        self._paths = [url.path, lease_file(url.store)] if url.is_file else []
        if leases is not None and leases.startswith("sqlite:"):
            self._paths.append(lease_file(StoreUrl.parse(leases)))
        FORKED_SQLITE.join(self.open_now)

    def open_now(self) -> tuple[list[Closable], int]:
        """Return what is open; all of that is in use."""
        return list(self._opened), len(self._opened)

    def wait(self, give_up_at: float, tell: Callable[[str], None], pause: Callable[[float], None]) -> None:
        """Return when each could be written to; after what a call may take, `tell` once what is waited for.

        `pause` sleeps between two looks, and raises if nobody wants to wait any more.
        """
        for path in self._paths:
            began, is_told = self._runtime.monotonic(), False
            while self._is_busy(path):
                took_s = self._runtime.monotonic() - began
                if took_s >= self._timeout_s and not is_told:
                    is_told = True
                    tell(_busy(path, took_s))
                if self._runtime.monotonic() > give_up_at:
                    raise LedgerUnavailable(_busy(path, took_s))
                pause(_BETWEEN_S)

    def _is_busy(self, path: Path) -> bool:
        """Whether somebody has been writing to it for a moment. What else may be wrong with it the start will say."""
        if not path.exists():
            return False
        try:
            with closing(opened(path, _ONE_LOOK_S, keeps_journal_mode=True)) as connection:
                self._opened.append(connection)
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
        except ERRORS as error:
            return trouble_of(error) in SLOW
        finally:
            self._opened.clear()
        return False


def _busy(path: Path, took_s: float) -> str:
    return f"SQLite file {path} was busy for {spelled(round(took_s))}"
