"""A connection to PostgreSQL that listens to one channel. Between two waits it may be asked something else."""

from __future__ import annotations

import select
from contextlib import suppress

from fencepost.sql.psycopg_link import BoundedPsycopg


class Channel:
    """One thread uses it. Whoever made the connection has set its limits."""

    def __init__(self, connection: BoundedPsycopg, name: str) -> None:
        self.connection = connection
        self._heard: list[str] = []
        connection.add_notify_handler(lambda notice: self._heard.append(notice.payload))
        try:
            connection.execute(f'LISTEN "{name}"')
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float, *, also: int | None = None) -> list[str]:
        """Return the payloads that were notified since the last call: as soon as there are any, else after `timeout_s`.

        It also returns when the descriptor `also` can be read. The driver's errors mean that it broke.
        """
        if not self._heard and self._can_be_read(max(timeout_s, 0.0), also):
            self._read()
        heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        with suppress(Exception):
            self.connection.close()

    def _can_be_read(self, timeout_s: float, also: int | None) -> bool:
        descriptor = self.connection.pgconn.socket
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if also is not None:
            poll.register(also, select.POLLIN)
        return descriptor in {ready for ready, _ in poll.poll(timeout_s * 1000)}

    def _read(self) -> None:
        link = self.connection.pgconn
        link.consume_input()
        while (notice := link.notifies()) is not None:
            self._heard.append(notice.extra.decode(errors="replace"))
