"""Waiting for busy SQLite files before a node starts: in short steps, so that the start can be cancelled.

Python handles no signal while a call to SQLite waits for a file. So each attempt has a short timeout, and between two
attempts the caller can cancel the start.

**Not promised.** That the file stays free. If it does not, the start itself waits, up to the timeout of a call.
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

_ONE_ATTEMPT_S = 0.2  # short, so that a signal is noticed between attempts
_BETWEEN_S = 0.05  # long enough for the holder to write, short enough not to be felt


class FreeFiles:
    """The SQLite files of an application, if it has any: the ledger's, and those of leases."""

    def __init__(self, app: App) -> None:
        self._runtime = app.runtime
        self._opened: list[Closable] = []
        url, leases = LedgerUrl.parse(app.settings.url), app.settings.leases  # the start opens the ledger itself
        self._timeout_s = url.timeout_s
        self._paths = [url.path, lease_file(url.store)] if url.is_file else []
        if leases is not None and leases.startswith("sqlite:"):
            self._paths.append(lease_file(StoreUrl.parse(leases)))
        FORKED_SQLITE.join(self.open_now)

    def open_now(self) -> tuple[list[Closable], int]:
        """Return the open connections, and how many of them are in use: all."""
        return list(self._opened), len(self._opened)

    def wait(self, give_up_at: float, report: Callable[[str], None], pause: Callable[[float], None]) -> None:
        """Return when each file could be written to. After the timeout of a call, `report` once which file is busy.

        `pause` sleeps between two attempts, and raises if the start is cancelled.
        """
        for path in self._paths:
            began, is_reported = self._runtime.monotonic(), False
            while self._is_busy(path):
                took_s = self._runtime.monotonic() - began
                if took_s >= self._timeout_s and not is_reported:
                    is_reported = True
                    report(_busy(path, took_s))
                if self._runtime.monotonic() > give_up_at:
                    raise LedgerUnavailable(_busy(path, took_s))
                pause(_BETWEEN_S)

    def _is_busy(self, path: Path) -> bool:
        """Whether another connection kept its write lock for the whole attempt. The start reports all other errors."""
        if not path.exists():
            return False
        try:
            with closing(opened(path, _ONE_ATTEMPT_S, keeps_journal_mode=True)) as connection:
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
