"""Serving the pages by themselves, with uvicorn: no access log, no rewritten addresses, no name of the server."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.errors import ConfigurationError, MissingExtra
from fencepost.web.application import checked_prefix, web
from fencepost.web.links import OneTimeLink

if TYPE_CHECKING:
    import uvicorn

    from fencepost.web.doors import Operated, ProxyHeader

_GRACE_S = 2  # for requests that are being answered; without it, open streams would keep the server running


@dataclass(frozen=True, slots=True)
class ListenOn:
    """Where the pages are served."""

    host: str
    port: int
    tls_cert: str = ""
    tls_key: str = ""
    prefix: str = ""
    names: tuple[str, ...] = ()
    is_behind_tls: bool = False


def serve_pages(
    operated: Operated,
    listening: ListenOn,
    *,
    proxy: ProxyHeader | None,
    link_for: str | None,
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> None:
    """Serve until the process is asked to end. `show` prints the one-time link, `tell` everything else."""
    link = None if link_for is None else OneTimeLink(operated.runtime, link_for)
    names = [f"[{each}]" if _is_v6(each) else each for each in listening.names]
    pages = web(
        operated, allowed_hosts=names, prefix=listening.prefix, proxy=proxy, link=link, is_https=listening.is_behind_tls
    )
    with _bound(listening) as bound:
        address = _address(listening, bound.getsockname()[1])
        tell(f"the pages are at {address}/")
        if link is not None:
            show(f"log in, once and within ten minutes: {address}/enter?once={link.secret}")
        _server(pages, listening).run(sockets=[bound])


@contextmanager
def pages_in_background(operated: Operated, listening: ListenOn, *, link_for: str) -> Iterator[str]:
    """Serve on a thread while the caller does something else; yield the one-time link. For the loopback."""
    link = OneTimeLink(operated.runtime, link_for)
    with _bound(listening) as bound:
        server = _server(web(operated, link=link), listening)
        task = operated.runtime.spawn("fencepost-pages", lambda: server.run(sockets=[bound]))
        try:
            yield f"{_address(listening, bound.getsockname()[1])}/enter?once={link.secret}"
        finally:
            server.should_exit = True
            task.join(_GRACE_S + 5)  # if the server hangs, the caller goes on all the same


def _server(pages: object, listening: ListenOn) -> uvicorn.Server:
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from fencepost.web.slow_clients import BoundedProtocol  # noqa: PLC0415 - of the same one
    except ModuleNotFoundError:
        raise MissingExtra(
            "fencepost serve needs the package 'uvicorn': pip install './fencepost[web]' from a clone"
        ) from None
    config = uvicorn.Config(
        pages,  # type: ignore[arg-type]
        ssl_certfile=listening.tls_cert or None,
        ssl_keyfile=listening.tls_key or None,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        access_log=False,
        log_config=None,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
        h11_max_incomplete_event_size=32_768,  # bytes of headers; the address may have `LONGEST_TARGET` of them
        limit_concurrency=1_000,  # connections; with more, requests are answered with 503
    )
    return uvicorn.Server(config)


def _bound(listening: ListenOn) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((listening.host, listening.port))
        found.listen(128)  # so that the link works as soon as it is printed
    except OSError as error:
        found.close()
        raise ConfigurationError(
            f"cannot listen on {listening.host} port {listening.port}: {error.strerror}. "
            "--port takes another one, and 0 any free one; --host takes another address of this machine"
        ) from None
    return found


def _is_v6(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).version == 6
    except ValueError:
        return False


def _address(listening: ListenOn, port: int) -> str:
    scheme = "https" if listening.tls_cert else "http"
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{scheme}://{host}:{port}{checked_prefix(listening.prefix)}"
