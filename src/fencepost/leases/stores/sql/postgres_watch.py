# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters
"""Waiting on PostgreSQL: with LISTEN on a direct connection, by polling behind a pooler."""

from __future__ import annotations

from fencepost.core.grants import Held, LeaseRecord
from fencepost.core.runtime import Runtime
from fencepost.leases.stores.sql.calls import Calls
from fencepost.leases.stores.sql.listening import LeaseListener
from fencepost.leases.stores.sql.looking import LeaseLook
from fencepost.leases.stores.sql.options import LeaseTables
from fencepost.leases.stores.sql.postgres_backend import WORDS, PostgresBackend
from fencepost.leases.stores.sql.waiting import Polling, Read, RefusalWatch
from fencepost.sql.psycopg_channel import Channel

_POLL_S = 0.1  # how late a waiter may notice a release, at ten cheap queries per second
_SLACK_US = 1_000_000  # so that waiters that come within a second share one mark


class PostgresWatch:
    """Chooses how to wait, depending on whether there was a pooler when the store started."""

    def __init__(
        self,
        runtime: Runtime,
        backend: PostgresBackend,
        tables: LeaseTables,
        *,
        calls: Calls,
        read: Read,
        timeout_s: float,
    ) -> None:
        self._backend = backend
        self._calls = calls
        self._timeout_s = timeout_s
        self._mark_sql = (
            f"UPDATE {tables.lease} SET waiting_until = {WORDS.now} + %s "
            f"WHERE name = %s AND waiting_until < {WORDS.now} + %s"
        )
        self._polling = Polling(runtime, read, interval_s=_POLL_S)
        self._listening = LeaseListener(
            runtime, dial=self._dial, mark=self._mark, read=read, look=self._look, rest=self._rest
        )

    def wait(self, held: Held, timeout_s: float) -> None:
        """Return when the name may be free."""
        way: RefusalWatch = self._polling if self._backend.is_proxied else self._listening
        way.wait(held, timeout_s)

    def shutdown(self) -> None:
        """End the listener."""
        self._listening.shutdown()

    def forget(self) -> None:
        """In a forked child: leave the listener to the parent."""
        self._listening.forget()

    def _dial(self) -> Channel:
        try:
            return self._backend.dial_listening(self._timeout_s)
        except self._calls.expected as error:
            raise self._calls.unavailable(error, self._timeout_s) from error

    def _look(self, channel: Channel, name: str) -> LeaseRecord | None:
        row = channel.connection.execute(self._backend.sql.look, (name,)).fetchone()
        return None if row is None else LeaseLook.of(row).record()

    def _rest(self) -> None:
        self._calls.pool.drop_unused(0.0)

    def _mark(self, name: str, timeout_s: float) -> None:
        """Mark the row, so that the end of the grant sends a notification. An existing mark is kept if it lasts."""
        wait_us = round(timeout_s * 1_000_000)
        parameters = (wait_us + _SLACK_US, name, wait_us)
        self._calls.run(self._timeout_s, lambda c: c.change(self._mark_sql, parameters))
