"""Requests to a server, and its answers.

**Promises.** Certificates are checked. Redirections are not followed, so the API token goes to no other address. Each
wait ends. What may have been done already is sent again only under its Idempotency-Key, so it is done once.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import fencepost
from fencepost.core.problems import PREFIX, REFUSED_BY_STATUS, error_of
from fencepost.errors import ConfigurationError, LedgerUnavailable

if TYPE_CHECKING:
    from fencepost.cli.remote.server import Server
    from fencepost.core.runtime import Runtime

_TIMEOUT_S = 30.0  # longer than every limit of the server
_TRIES = 3  # a restart of the server takes about a second
_PAUSE_S = 0.5  # times the number of the try: 1.5 s in all, longer than a restart takes
_LARGEST_ANSWER = 64 * 1024 * 1024  # no answer of ours comes near; a wrong address might send anything
_BUSY = (429, 502, 503)  # too many requests, or a server or ledger that is away: it may answer a moment later
_OF_A_PROXY = (401, 403, 429, 502, 503)  # what may stand before a server says these in its own words
_NO_ADDRESS = f"{PREFIX}{REFUSED_BY_STATUS[404]}"
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_SPEAKS_HTTP = "it probably speaks http; on the loopback, write http://"


class ServerConnection:
    """Asks one server, over a connection that is kept between requests."""

    def __init__(self, server: Server, runtime: Runtime) -> None:
        self._server = server
        self._runtime = runtime
        self._open: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Ask for something."""
        return self._asked("GET", path, query, None, {})

    def ask(self, path: str, body: Mapping[str, Any], *, timeout_s: float = _TIMEOUT_S) -> Any:
        """Ask for something by a body. Nothing is changed."""
        return self._asked("POST", path, None, body, {}, timeout_s=timeout_s)

    def act(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        method: str = "POST",
        query: Mapping[str, Any] | None = None,
        is_new: bool = False,
    ) -> Any:
        """Do something, once, however often it has to be sent. `is_new`: only if nothing is there yet."""
        headers = {"Idempotency-Key": self._runtime.new_id()} | ({"If-None-Match": "*"} if is_new else {})
        return self._asked(method, path, query, body, headers)

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> Any:
        given = {name: value for name, value in (query or {}).items() if value is not None and value != []}
        target = f"{self._server.url.path}/api/v1{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        raw = None if body is None else json.dumps(body).encode()
        for each in range(1, _TRIES + 1):
            try:
                status, kind, text = self._sent(method, target, raw, headers, timeout_s)
            except ssl.SSLError as error:
                failed = f"TLS with {self._server.shown} failed: {error.reason or error}"
                is_plain = error.reason in _NO_TLS
                raise ConfigurationError(f"{failed}: {_SPEAKS_HTTP}" if is_plain else failed) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if each == _TRIES:
                    said = str(error) or type(error).__name__
                    raise LedgerUnavailable(f"the server at {self._server.shown} did not answer: {said}") from None
            else:
                if status not in _BUSY or each == _TRIES:
                    return self._read(status, kind, text)
            self._runtime.sleep(_PAUSE_S * each)
        raise AssertionError("the last try returns or raises")

    def _sent(
        self, method: str, target: str, raw: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, str, bytes]:
        said = {"Authorization": f"Bearer {self._server.token}", "Accept": "application/json", **headers}
        said["User-Agent"] = f"fencepost/{fencepost.__version__}"
        if raw is not None:
            said["Content-Type"] = "application/json"
        connection = self._connection(timeout_s)
        connection.request(method, target, body=raw, headers=said)
        answer = connection.getresponse()
        text = answer.read(_LARGEST_ANSWER + 1)
        if len(text) > _LARGEST_ANSWER:
            raise ConfigurationError(f"the answer of {self._server.shown} is too large")
        return answer.status, answer.headers.get_content_type(), text

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._open is None:
            host, port = str(self._server.url.hostname), self._server.url.port
            if self._server.url.scheme == "https":
                context = ssl.create_default_context()
                self._open = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
            else:
                self._open = http.client.HTTPConnection(host, port, timeout=timeout_s)
        self._open.timeout = timeout_s
        if self._open.sock is not None:
            self._open.sock.settimeout(timeout_s)
        return self._open

    def _read(self, status: int, kind: str, text: bytes) -> Any:
        is_ours = kind in ("application/json", "application/problem+json")
        try:
            read = json.loads(text) if is_ours else None
        except ValueError:
            is_ours, read = False, None
        if 300 <= status < 400:
            raise ConfigurationError(f"{self._server.shown} answers with a redirection, which is not followed")
        word = str(read.get("type", "")) if isinstance(read, dict) else ""
        if not is_ours and status in _OF_A_PROXY:
            raise error_of(
                {"status": status, "detail": f"{self._server.shown} is no Fencepost server (status {status})"}
            )
        if not is_ours or (status == 404 and (not word.startswith(PREFIX) or word == _NO_ADDRESS)):
            raise ConfigurationError(self._wrong_address(is_answered=word == _NO_ADDRESS))
        if status >= 400:
            raise error_of(read if isinstance(read, dict) else {"status": status})
        return read

    def _wrong_address(self, *, is_answered: bool) -> str:
        """Say what to give. `is_answered`: by a Fencepost server, at a path that it does not have."""
        give = "give the address of the pages, with --prefix if it has one"
        if is_answered and not self._server.url.path:
            return f"{self._server.shown} does not have this call: {give}; or that server is of an older version"
        return f"{self._server.shown} does not answer as a Fencepost server: {give}"


def part(name: object) -> str:
    """Return a name as the end of a path."""
    return quote(str(name), safe="/")
