"""The network between a process and its servers, which misbehaves on command.

Each process of chaos reaches each server through a proxy of its own, so that one can be cut off while others are not.
All of them run on one event loop, on a thread of their own.

============  ==========================================================================================
flow          bytes pass
hold          nothing passes, and nothing is lost: what was sent arrives late, when it flows again
black hole    what is sent is gone, either way; a connection that lost something is reset when it flows again
lost replies  requests arrive, replies are dropped: the sender does not know the outcome
refuse        the port is closed; existing connections continue
============  ==========================================================================================

`cut` resets every connection, in whatever mode. `lead_to` sends those that come from now on to another server: that is
what a promotion looks like to clients of a virtual address.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

from fencepost.core.runtime import Runtime

T = TypeVar("T")

HOST = "127.0.0.1"
Address = tuple[str, int]
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CHUNK = 65536  # bytes that are passed on at once; a fault begins between two chunks
_ANSWER_WITHIN_S = 10.0  # the loop only opens and closes connections; if it takes longer, it hangs


class Mode(StrEnum):
    """What becomes of bytes."""

    FLOW = "flow"
    HOLD = "hold"
    BLACK_HOLE = "black hole"
    LOST_REPLIES = "lost replies"
    REFUSE = "refuse"


class Network:
    """The event loop that all proxies share."""

    def __init__(self, runtime: Runtime) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = runtime.spawn("chaos-network", self._loop.run_forever)
        self._proxies: list[Proxy] = []

    def proxy(self, server: Address) -> Proxy:
        """Return a proxy to a server that listens from now on."""
        proxy = Proxy(self, server)
        self.do(proxy._listen())
        self._proxies.append(proxy)
        return proxy

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop, and return what came of it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_WITHIN_S)

    def close(self) -> None:
        """End all connections, and the loop."""
        if self._loop.is_running():
            for proxy in self._proxies:
                self.do(proxy._end())
            self.do(_cancel_all())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._task.join(_ANSWER_WITHIN_S)
        self._loop.close()


class Proxy:
    """A port in front of one server. Made by `Network.proxy`."""

    def __init__(self, network: Network, server: Address) -> None:
        self._network = network
        self._server = server
        self._listener: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._flows = asyncio.Event()
        self.port = 0
        self.mode = Mode.FLOW

    @property
    def address(self) -> Address:
        """Where clients find it."""
        return HOST, self.port

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._links)

    def set(self, mode: Mode) -> None:
        """Change what becomes of bytes; when this returns, it is so."""
        self._network.do(self._set(mode))

    def cut(self) -> None:
        """Reset every connection."""
        self._network.do(self._cut())

    def lead_to(self, server: Address) -> None:
        """Lead to another server from now on; connections to the one before are reset."""
        self._server = server
        self.cut()

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, HOST, self.port)
            self.port = self._listener.sockets[0].getsockname()[1]
        if self.mode in (Mode.FLOW, Mode.LOST_REPLIES):
            self._flows.set()

    async def _set(self, mode: Mode) -> None:
        self.mode = mode
        if mode is Mode.REFUSE:
            await self._refuse()
        else:
            await self._listen()
        if mode in (Mode.HOLD, Mode.BLACK_HOLE):
            self._flows.clear()
        else:
            self._flows.set()
        if mode is Mode.FLOW:
            for link in [link for link in self._links if link.has_lost]:
                link.reset()

    async def _refuse(self) -> None:
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        # The listener does not know a client yet that was accepted a moment ago. If it closed now, it would never
        # register that client, and the client's sockets would stay open.
        for listening in listener.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        await asyncio.sleep(0)
        listener.close()

    async def _cut(self) -> None:
        for link in list(self._links):
            link.reset()

    async def _end(self) -> None:
        await self._set(Mode.REFUSE)
        await self._cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        self._links.add(link)
        try:
            await self._flows.wait()
            there, back = await asyncio.open_connection(*self._server)
            link.server = back
            requests, replies = self._pass(reader, back, link), self._pass(there, writer, link, are_replies=True)
            await asyncio.gather(requests, replies)
        except OSError:
            pass  # the server is gone, or a connection was reset: for the client the same
        finally:
            link.reset()
            self._links.discard(link)

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, link: _Link, *, are_replies: bool = False
    ) -> None:
        while chunk := await source.read(_CHUNK):
            if self.mode is Mode.HOLD:
                await self._flows.wait()
            if self.mode is Mode.BLACK_HOLE or (are_replies and self.mode is Mode.LOST_REPLIES):
                link.has_lost = True
            if not link.has_lost:
                target.write(chunk)
                await target.drain()
        if not self._flows.is_set():
            await self._flows.wait()  # that it was closed is not known either
        raise ConnectionResetError


class _Link:
    """A client's connection, and the one that was made for it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self._client = client
        self.server: asyncio.StreamWriter | None = None
        self.has_lost = False  # nothing that follows would make sense

    def reset(self) -> None:
        for writer in (self._client, self.server):
            if writer is not None and not writer.transport.is_closing():
                with suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
