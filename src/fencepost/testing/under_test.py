"""What the contract suite needs to know about a store: how to reach it, and how to make it fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import LeaseStore
from fencepost.testing.faulty import FaultyStore
from fencepost.threaded import ThreadedRuntime


class StoreFault(Protocol):
    """A connection to the store that can be broken."""

    store: LeaseStore

    def hang(self) -> None:
        """Drop everything in both directions, without an error."""
        ...

    def lose_replies(self) -> None:
        """Let requests through and drop the replies."""
        ...

    def heal(self) -> None:
        """Work again, for new connections."""
        ...


class StoreUnderTest(Protocol):
    """A store with its real server."""

    url: str

    def restart(self) -> None:
        """Kill the server with SIGKILL and start it again. One without durable storage starts empty."""
        ...

    def forget(self, name: str) -> None:
        """Delete everything that the server stores for a lock's name, with the server's own tools."""
        ...

    def fault(self) -> AbstractContextManager[StoreFault]:
        """Open a connection to the store that can be broken without affecting others."""
        ...


class _Proxy(Protocol):
    """A TCP proxy in front of the server."""

    def through(self, url: str) -> str: ...
    def swallow(self) -> None: ...
    def swallow_replies(self) -> None: ...
    def flow(self) -> None: ...
    def cut(self) -> None: ...


class NetworkFault:
    """A store behind a proxy that can drop bytes."""

    def __init__(self, proxy: _Proxy, url: str) -> None:
        self._proxy = proxy
        self.store = store_from_url(proxy.through(url), ThreadedRuntime())

    def hang(self) -> None:
        self._proxy.swallow()

    def lose_replies(self) -> None:
        self._proxy.swallow_replies()

    def heal(self) -> None:
        self._proxy.flow()
        self._proxy.cut()


class LocalFault:
    """A store without a network, behind a `FaultyStore`."""

    def __init__(self, url: str) -> None:
        self.store: LeaseStore = (faulty := FaultyStore(store_from_url(url, ThreadedRuntime())))
        self.hang: Callable[[], None] = faulty.hang
        self.lose_replies: Callable[[], None] = faulty.lose_replies
        self.heal: Callable[[], None] = faulty.heal
