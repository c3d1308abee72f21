"""A network that swallows packets: connections for users' transactions notice it in seconds, not in hours."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from fencepost.engine.engines import close_engine, engine_of
from fencepost.ledger.ledger import Ledger


def test_connections_to_the_ledger_notice_a_peer_that_is_gone(ledger: Ledger, kind: str) -> None:
    if kind == "sqlite":
        pytest.skip("there is no network")
    with engine_of(ledger).connect() as connection:
        raw: Any = connection.connection.driver_connection
        wire = socket.socket(fileno=socket.dup(raw.fileno() if kind == "postgresql" else raw._sock.fileno()))
    close_engine(ledger)
    with wire:
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        silence_s = sum(
            wire.getsockopt(socket.IPPROTO_TCP, option) * times
            for option, times in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 3))
        )
        assert silence_s <= 60
        assert 0 < wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
