"""How processes of chaos reach the servers: through a proxy each, where a URL allows to put one in between.

It does for a server at one address that shows no certificate to be checked. Otherwise processes are led straight to
it, and nothing happens to their network. Where a store is reached by way of sentinels, they name the server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from fencepost.core.urls import StoreUrl
from fencepost.proof.chaos.proxy import HOST, Address, Network, Proxy

_PORTS = {"postgresql": 5432, "postgres": 5432, "mysql": 3306, "mariadb": 3306, "redis": 6379, "valkey": 6379}
_CHECKED = ("verify-ca", "verify-full")


def server_of(url: str) -> Address | None:
    """Return the address that a proxy can stand in front of, or None if there is none."""
    parsed = StoreUrl.parse(url)
    port = _PORTS.get(parsed.scheme.partition("+")[0])
    is_checked = parsed.options.get("sslmode") in _CHECKED or "ssl_ca" in parsed.options
    is_elsewhere = "host" in parsed.options or "unix_socket" in parsed.options or parsed.scheme == "redis+sentinel"
    if port is None or len(parsed.hosts) != 1 or is_checked or is_elsewhere:
        return None
    host, given = parsed.hosts[0]
    return host, given or port


@dataclass(slots=True)
class ServerLine:
    """The way to one server: straight, or through proxies."""

    url: str
    server: Address | None
    network: Network
    proxies: list[Proxy] = field(default_factory=list)

    def connect(self) -> tuple[str, Proxy | None]:
        """Return a URL for one more process, and the proxy it leads through."""
        if self.server is None:
            return self.url, None
        proxy = self.network.proxy(self.server)
        self.proxies.append(proxy)
        return through(self.url, proxy.port), proxy

    def lead_to(self, server: Address) -> None:
        """Connect all processes to another server from now on."""
        self.server = server
        for proxy in self.proxies:
            proxy.lead_to(server)


def through(url: str, port: int) -> str:
    """Return the URL with the address of a proxy in place of the server's."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{account}{at}{HOST}:{port}"))
