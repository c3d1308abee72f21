"""A TCP proxy that misbehaves on command: the network faults that a loopback connection never has by itself.

All traffic runs in one thread of the proxy's own, and so do the commands: when ``swallow()`` has returned, not one more
byte passes. The modes are

- ``flow``: bytes pass (the mode at first);
- ``swallow``: connections stay open and data is acknowledged, but no byte and no close passes either way, and new
  connections are accepted and left mute: a black hole;
- ``swallow_replies``: requests reach the server, replies are lost: the outcome of a request is unknown to who sent it;
- ``hold``: like ``swallow``, but nothing is lost: what was sent meanwhile arrives late, after ``flow()``, as when a
  network comes back;
- ``refuse``: the port is closed; existing connections continue.

``flow()`` ends any of these. A connection that lost bytes stays mute in that direction for good, since what follows
would make no sense to the other end; a close that was held back is passed on. ``cut()`` resets all connections and
changes no mode. ``delay()`` holds each chunk back for a time, each way.

When the server itself is down, the client's connection is accepted and then reset, rather than refused.
"""

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from testbed import keeper
from testbed.server import HOST, free_port

Result = TypeVar("Result")

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Mode(Enum):
    FLOW = "flow"
    SWALLOW = "swallow"
    SWALLOW_REPLIES = "swallow replies"
    HOLD = "hold"


class Proxy:
    """A proxy on a free loopback port in front of one server; listens from ``start()`` to ``close()``."""

    def __init__(self, host: str, port: int) -> None:
        self.server = (host, port)
        self.host = HOST
        self.port = free_port()
        self.mode = Mode.FLOW
        self.delay_s = 0.0
        self.bytes_swallowed = 0
        self._links: set[_Link] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._directory: Path | None = None

    # --- the commands

    def start(self) -> Self:
        self._thread.start()
        self.flow()
        return self

    def flow(self) -> None:
        """Back to normal: listen, pass bytes on without delay."""
        self._do(self._flow())

    def swallow(self) -> None:
        self._do(self._set_mode(Mode.SWALLOW))

    def swallow_replies(self) -> None:
        self._do(self._set_mode(Mode.SWALLOW_REPLIES))

    def hold(self) -> None:
        self._do(self._set_mode(Mode.HOLD))

    def refuse(self) -> None:
        self._do(self._refuse())

    def cut(self) -> None:
        self._do(self._cut())

    def delay(self, seconds: float) -> None:
        """Hold each chunk back for this long, each way; 0 ends it."""
        self.delay_s = seconds

    def close(self) -> None:
        """Stop listening, reset all connections, end the thread."""
        if self._thread.is_alive():
            self._do(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        if self._directory:
            keeper.remove_directory(self._directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """How many connections clients have open through the proxy."""
        return len(self._links)

    def through(self, url: str) -> str:
        """The store URL with the server's address replaced by the proxy's."""
        if url.startswith("kubernetes:"):
            return self._kubernetes_through(url)
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=self._replace_address(parts.netloc)))

    def _kubernetes_through(self, url: str) -> str:
        """The address stands in the kubeconfig that the URL names: make a copy that has the proxy's."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        self._directory = self._directory or keeper.make_directory("proxy")
        copy = self._directory / "kubeconfig"
        copy.write_text(self._replace_address(Path(query["kubeconfig"][0]).read_text()))
        return urlunsplit(parts._replace(query=urlencode(query | {"kubeconfig": str(copy)}, doseq=True, safe="/")))

    def _replace_address(self, text: str) -> str:
        address = "{}:{}".format(*self.server)
        if address not in text:
            raise ValueError(f"the server behind this proxy, {address}, is not in the URL or its kubeconfig")
        return text.replace(address, f"{self.host}:{self.port}")

    # --- the same, in the proxy's thread

    def _do(self, command: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(command, self._loop).result(timeout=60)

    async def _flow(self) -> None:
        self.delay_s = 0.0
        await self._set_mode(Mode.FLOW)
        if self._listener is None:
            self._listener = await self._loop.create_server(lambda: _Link(self).client, self.host, self.port)

    async def _set_mode(self, mode: Mode) -> None:
        self.mode = mode
        for link in list(self._links):
            link.mode_changed()

    async def _refuse(self) -> None:
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        # Whoever was accepted a moment ago is not yet known to the listener; closed now, it would fail to get to know
        # them, and nobody would ever close their sockets.
        for listening in listener.sockets:
            self._loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        listener.close()

    async def _cut(self) -> None:
        for link in list(self._links):
            link.reset()
        await asyncio.sleep(0)  # the sockets are closed by callbacks

    async def _end(self) -> None:
        await self._refuse()
        await self._cut()
        while connecting := asyncio.all_tasks() - {asyncio.current_task()}:  # also those just accepted
            await asyncio.gather(*connecting, return_exceptions=True)
            await self._cut()


class _Link:
    """One client's connection and the one made for it to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.client = _End(self, passes_in=(Mode.FLOW, Mode.SWALLOW_REPLIES))
        self.server = _End(self, passes_in=(Mode.FLOW,))
        self.client.other, self.server.other = self.server, self.client
        self._connecting: asyncio.Task[None] | None = None

    def accepted(self) -> None:
        self.proxy._links.add(self)
        self.mode_changed()

    def mode_changed(self) -> None:
        if self._connecting is None and self.proxy.mode in self.client.passes_in:
            self._connecting = asyncio.ensure_future(self._connect())
        for end in (self.client, self.server):
            end.mode_changed()

    async def _connect(self) -> None:
        try:
            await self.proxy._loop.create_connection(lambda: self.server, *self.proxy.server)
        except OSError:
            self.reset()

    def reset(self) -> None:
        for end in (self.client, self.server):
            end.shut(is_reset=True)
        self.forget()

    def forget(self) -> None:
        self.proxy._links.discard(self)
        if self._connecting:
            self._connecting.cancel()


class _End(asyncio.Protocol):
    """One of the two connections of a link, and the fate of what is received on it."""

    other: "_End"

    def __init__(self, link: _Link, *, passes_in: tuple[Mode, ...]) -> None:
        self.link = link
        self.proxy = link.proxy
        self.passes_in = passes_in
        self.transport: asyncio.Transport | None = None
        self.is_broken = False  # bytes were lost: nothing that follows would make sense
        self.is_full = False  # what is to be sent here piles up
        self._delayed: deque[Callable[[], None]] = deque()
        self._held_close: bool | None = None  # a close that could not pass; True for a reset

    # --- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self is self.link.client:
            self.link.accepted()
        self._regulate()
        self.other._regulate()

    def data_received(self, data: bytes) -> None:
        self._after_delay(lambda: self._pass(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._after_delay(lambda: self._pass_close(is_reset=error is not None))

    def pause_writing(self) -> None:
        self.is_full = True
        self.other._regulate()

    def resume_writing(self) -> None:
        self.is_full = False
        self.other._regulate()

    # --- what becomes of it

    def mode_changed(self) -> None:
        while self._delayed and self.proxy.mode is not Mode.HOLD:
            self._delayed.popleft()()
        if self._held_close is not None:
            self._pass_close(is_reset=self._held_close)
        self._regulate()

    def shut(self, *, is_reset: bool) -> None:
        if not self.transport:
            return
        if is_reset:
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.transport.abort()
        else:
            self.transport.close()

    def _regulate(self) -> None:
        """Read only what can be passed on now or is to be swallowed; the kernel keeps the rest."""
        if self.transport and not self.transport.is_closing():
            if self.proxy.mode is Mode.SWALLOW or (self._can_pass_on and self.proxy.mode is not Mode.HOLD):
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    @property
    def _can_pass_on(self) -> bool:
        return self.other.transport is not None and not self.other.is_full

    def _after_delay(self, step: Callable[[], None]) -> None:
        self._delayed.append(step)
        if self.proxy.delay_s:
            self.proxy._loop.call_later(self.proxy.delay_s, self._next_delayed)
        else:
            self._next_delayed()

    def _next_delayed(self) -> None:
        if self._delayed and self.proxy.mode is not Mode.HOLD:
            self._delayed.popleft()()

    def _pass(self, data: bytes) -> None:
        if self.other.transport and not self.is_broken and self.proxy.mode in self.passes_in:
            self.other.transport.write(data)
        else:
            self.is_broken = True
            self.proxy.bytes_swallowed += len(data)

    def _pass_close(self, *, is_reset: bool) -> None:
        if self.proxy.mode not in self.passes_in:
            self._held_close = is_reset
        elif self.other.transport:
            self.other.shut(is_reset=is_reset)
        else:
            self.link.forget()
