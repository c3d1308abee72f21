"""What the contract suite needs to know of a store: how to reach it and how to hurt it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from fencepost.leases.schemes import store_from_url
from fencepost.leases.store import LeaseStore
from fencepost.testing.faulty import FaultyStore
from fencepost.threaded import ThreadedRuntime


class StoreFault(Protocol):
    """A way to the store that can be broken."""

    store: LeaseStore

    def hang(self) -> None:
        """Swallow everything: no error, no answer."""
        ...

    def lose_replies(self) -> None:
        """Let requests through and swallow the answers."""
        ...

    def heal(self) -> None:
        """Work again, for connections made from now on."""
        ...


class StoreUnderTest(Protocol):
    """A store with its real server."""

    url: str

    def restart(self) -> None:
        """Kill the server as hard as it can be and start it again; one that forgets comes back empty."""
        ...

    def forget(self, name: str) -> None:
        """Delete everything the server keeps under a lock's name, by the server's own means."""
        ...

    def fault(self) -> AbstractContextManager[StoreFault]:
        """Open a way to the store that can be broken without disturbing others."""
        ...


class _Proxy(Protocol):
    """A TCP proxy in front of the server."""

    def through(self, url: str) -> str: ...
    def swallow(self) -> None: ...
    def swallow_replies(self) -> None: ...
    def flow(self) -> None: ...
    def cut(self) -> None: ...


class NetworkFault:
    """A store reached through a proxy that can swallow bytes."""

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
