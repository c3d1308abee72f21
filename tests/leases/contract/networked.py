"""A store whose server is a process of its own behind a TCP port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fencepost.testing import NetworkFault
from testbed.proxy import Proxy
from testbed.server import Server


class Networked:
    """Adapts a server of the testbed to what the contract suite asks for."""

    def __init__(self, server: Server, forget: Callable[[str], object], url: str | None = None) -> None:
        self._server = server
        self.url = url or server.url
        self.forget = forget

    def restart(self) -> None:
        self._server.kill()
        self._server.restart()

    @contextmanager
    def fault(self) -> Iterator[NetworkFault]:
        with Proxy(self._server.host, self._server.port) as proxy:
            yield NetworkFault(proxy, self.url)
