"""``fencepost serve``: the pages, stand-alone.

Closed by default, on the loopback too: whoever starts it gets a one-time link on the terminal. On any other address it
starts only if people can log in, and if TLS or a declared proxy protects what they type.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fencepost.cli import messages
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import LedgerUrlOption, opened, who
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app.operations import Operations
    from fencepost.core.runtime import Runtime
    from fencepost.web.doors import ProxyHeader

_PORT = 8600  # ports above 1023 need no privilege
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECRET_VARIABLE = "FENCEPOST_PROXY_SECRET"  # noqa: S105 - the name of a variable
# An error is printed as one line, where a word after --tls-key is masked: ways are numbered, and it comes last.
_WAYS_OUT = (
    "{host} can be reached from other machines, and {what}. Choose one of these: "
    "(1) --host 127.0.0.1, reached by an SSH tunnel: ssh -L {port}:127.0.0.1:{port} HOST; "
    "(2) --behind-tls-proxy where a proxy in front speaks TLS, with accounts: fencepost users add NAME; "
    "(3) --proxy ADDRESS where a proxy in front also identifies people; "
    "(4) with accounts, both of --tls-cert and --tls-key"
)


class ServedLedger(NamedTuple):
    """What is shown: an application, or a ledger without the code of its jobs."""

    runtime: Runtime
    operations: Operations


def serve(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="[APP]",
            help="The application, as package.module:app. Without it, the ledger is enough: --ledger URL.",
            show_default=False,
        ),
    ] = "",
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any free one.")] = _PORT,
    tls_cert: Annotated[str, typer.Option(metavar="FILE", help="Speak TLS, with this certificate.")] = "",
    tls_key: Annotated[str, typer.Option(metavar="FILE", help="The key of the certificate.")] = "",
    behind_tls_proxy: Annotated[
        bool, typer.Option("--behind-tls-proxy", help="A proxy in front speaks TLS; people log in here.")
    ] = False,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help=f"A proxy at this address or network identifies people. Its secret is in ${_SECRET_VARIABLE}.",
        ),
    ] = None,
    proxy_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header in which the proxy names people.")
    ] = "X-Fencepost-User",
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name under which the pages are reached. May be repeated."),
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="PATH", help="The path under which a proxy shows the pages.")] = "",
    ledger: LedgerUrlOption = "",
) -> int:
    """Serve the pages for operators.

    On the loopback, a one-time link to log in is printed. Other addresses need accounts (fencepost users), and TLS or
    a proxy; otherwise exit code 2.

    Example: fencepost serve shop:app

    Example: fencepost serve --ledger postgresql://db/jobs --host 0.0.0.0 --tls-cert c.pem --tls-key k.pem
    """
    if bool(tls_cert) != bool(tls_key):
        raise ConfigurationError("give both --tls-cert and --tls-key, or none of them")
    believed = _proxy(proxy or [], proxy_header)
    with _served(spec, ledger) as served:
        has_tls = bool(tls_cert) or behind_tls_proxy
        refuse_open_door(served, host, port or _PORT, has_tls=has_tls, has_proxy=believed is not None)
        for option, file in (("--tls-cert", tls_cert), ("--tls-key", tls_key)):
            if file:
                _refuse_unreadable(option, file)
        from fencepost.web.serving import ListenOn, serve_pages  # noqa: PLC0415 - an extra

        names = [*(allowed_host or []), *([host] if host not in ("", "0.0.0.0", "::") else [])]  # noqa: S104
        listening = ListenOn(host, port, tls_cert, tls_key, prefix, tuple(names), behind_tls_proxy)
        name = who("") if host in _LOOPBACK and believed is None else None
        serve_pages(served, listening, proxy=believed, link_for=name, tell=_tell, show=_show)
    return Exit.OK


def _refuse_unreadable(option: str, file: str) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise ConfigurationError(f"cannot read {option} {file}: {error.strerror}") from None


def refuse_open_door(served: ServedLedger, host: str, port: int, *, has_tls: bool, has_proxy: bool) -> None:
    """Refuse an address that others can reach where nobody could log in, or passwords could be read on the way."""
    if host in _LOOPBACK or has_proxy:
        return
    if not has_tls:
        raise ConfigurationError(_WAYS_OUT.format(host=host, port=port, what="passwords would be sent in clear text"))
    if not _has_accounts(served):
        raise ConfigurationError(_WAYS_OUT.format(host=host, port=port, what="there is no account to log in with"))


def _has_accounts(served: ServedLedger) -> bool:
    from fencepost.access import authorize  # noqa: PLC0415 - it loads the engine
    from fencepost.core.rights import Scope  # noqa: PLC0415

    found = authorize(served.operations, Scope.direct()).access.accounts()
    return any(each.password is not None and each.disabled_at is None for each in found)


def _proxy(addresses: list[str], header: str) -> ProxyHeader | None:
    import os  # noqa: PLC0415

    from fencepost.web.doors import ProxyHeader  # noqa: PLC0415 - an extra

    if not addresses:
        return None
    secret = os.environ.get(_SECRET_VARIABLE, "")
    if not secret:
        raise ConfigurationError(f"--proxy needs a secret that only the proxy knows, in {_SECRET_VARIABLE}")
    return ProxyHeader.of(addresses, secret, user_header=header)


@contextmanager
def _served(spec: str, ledger: str) -> Iterator[ServedLedger]:
    """Open what is shown: the application with its jobs' code, or the ledger alone."""
    from fencepost.app.operations import Operations  # noqa: PLC0415 - it loads the engine
    from fencepost.core.rights import Scope  # noqa: PLC0415

    if spec:
        from fencepost.cli.applications import reached  # noqa: PLC0415

        with reached(spec, ledger) as found:
            yield ServedLedger(found.app.runtime, found.operations)
    else:
        with opened(ledger) as book:
            yield ServedLedger(book.runtime, Operations(book, Scope.direct()))


def _tell(sentence: str) -> None:
    messages.complain(sentence)


def _show(line: str) -> None:
    """Print what is for the terminal alone: it goes to no log."""
    print(line, file=sys.stdout, flush=True)
