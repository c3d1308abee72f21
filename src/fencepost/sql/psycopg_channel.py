"""A connection to PostgreSQL that listens to one channel. Between two waits it can execute other statements."""

from __future__ import annotations

import select
from contextlib import suppress

from fencepost.sql.psycopg_link import BoundedPsycopg


class Channel:
    """A channel for one thread. The caller has set the limits of the connection."""

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
        """Return the payloads received since the last call: as soon as there are any, else after `timeout_s`.

        It also returns when the descriptor `also` can be read. An error of the driver means that the connection broke.
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
