"""The network of chaos does what it is told, and nothing else."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from fencepost.proof.chaos.proxy import Mode, Network, Proxy
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from tests.dialling import dialled

HOST = "127.0.0.1"


class Echo:
    """A server that answers each line with its name before it."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.received: list[bytes] = []
        self._listener = socket.create_server((HOST, 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self._listener.getsockname()[1]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # or the thread that waits in accept keeps it open
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while line := connection.recv(100):
                self.received.append(line)
                connection.sendall(self.name + line)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo(b"a:")) as server:
        yield server


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    network = Network(ThreadedRuntime())
    yield network.proxy(echo.address)
    network.close()


def connect(proxy: Proxy, timeout_s: float = 5.0) -> socket.socket:
    return socket.create_connection(proxy.address, timeout_s)


def ask(connection: socket.socket, line: bytes) -> bytes:
    connection.sendall(line)
    return connection.recv(100)


def is_mute(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(100) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5.0)


def test_bytes_pass(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        assert ask(connection, b"hello") == b"a:hello"
        assert proxy.connections == 1
    until(lambda: proxy.connections == 0, 30, "the connection is forgotten")


def test_what_is_held_arrives_late_and_whole(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as connection:
        ask(connection, b"one")
        proxy.set(Mode.HOLD)
        connection.sendall(b"two")
        assert is_mute(connection)
        assert echo.received == [b"one"]
        proxy.set(Mode.FLOW)
        assert connection.recv(100) == b"a:two"


def test_what_fell_into_a_black_hole_is_gone_and_its_connection_reset_when_it_flows_again(
    proxy: Proxy, echo: Echo
) -> None:
    with connect(proxy) as connection, connect(proxy) as silent:
        ask(connection, b"one")
        ask(silent, b"one")
        proxy.set(Mode.BLACK_HOLE)
        connection.sendall(b"two")
        assert is_mute(connection)
        proxy.set(Mode.FLOW)
        with pytest.raises(ConnectionError):
            connection.recv(100)
        assert echo.received == [b"one", b"one"]
        assert ask(silent, b"three") == b"a:three"  # nothing of it was lost


def test_a_request_whose_reply_is_lost_has_happened(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as connection:
        ask(connection, b"one")
        proxy.set(Mode.LOST_REPLIES)
        connection.sendall(b"two")
        until(lambda: echo.received == [b"one", b"two"], 30, "the request arrives")
        assert is_mute(connection)


def test_whoever_connects_is_refused_and_those_who_are_connected_go_on(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection, b"one")
        proxy.set(Mode.REFUSE)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert ask(connection, b"two") == b"a:two"
        proxy.set(Mode.FLOW)
        with connect(proxy) as another:
            assert ask(another, b"three") == b"a:three"


def test_a_cut_resets_everybody(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection, b"one")
        proxy.cut()
        with pytest.raises(ConnectionError):
            connection.recv(100)


def test_it_leads_to_another_server(proxy: Proxy) -> None:
    with closing(Echo(b"b:")) as other, connect(proxy) as before:
        ask(before, b"one")
        proxy.lead_to(other.address)
        with pytest.raises(ConnectionError):
            before.recv(100)
        with connect(proxy) as after:
            assert ask(after, b"two") == b"b:two"


def test_a_server_that_is_gone_resets_its_clients(proxy: Proxy, echo: Echo) -> None:
    echo.close()
    with suppress(ConnectionError), connect(proxy) as connection:
        assert connection.recv(100) == b""


def test_whoever_is_accepted_while_it_begins_to_refuse_is_not_left_open(echo: Echo) -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        network = Network(ThreadedRuntime())
        proxy = network.proxy(echo.address)
        with dialled(proxy.address):
            for _ in range(100):
                proxy.set(Mode.REFUSE)
                proxy.set(Mode.FLOW)
        network.close()
        gc.collect()
    assert [str(each.message) for each in seen if "unclosed" in str(each.message)] == []
