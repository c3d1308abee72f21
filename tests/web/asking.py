"""Requests to the pages, by ASGI itself: headers go out as they are written here, twice if a test writes them twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode

Header = tuple[str, str]
FROM_OUR_PAGES = ("Sec-Fetch-Site", "same-origin")


@dataclass
class Answer:
    status: int
    headers: list[Header]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str:
        return ", ".join(value for each, value in self.headers if each == name)

    @property
    def cookie(self) -> str:
        """The cookie that was set, as a browser sends it back."""
        return self.header("set-cookie").partition(";")[0]


class Browser:
    """Asks one application, and keeps the cookie of a login."""

    def __init__(
        self,
        app: Any,
        *,
        root_path: str = "",
        host: str = "127.0.0.1",
        scheme: str = "http",
        address: str = "127.0.0.1",
    ) -> None:
        self.app = app
        self.root_path = root_path
        self.host = host
        self.scheme = scheme
        self.address = address
        self.cookie = ""

    def get(self, target: str, *headers: Header) -> Answer:
        return self.ask("GET", target, headers)

    def post(self, target: str, form: dict[str, Any] | None = None, *headers: Header) -> Answer:
        """Send a form as one of our own pages does."""
        return self.ask("POST", target, (FROM_OUR_PAGES, *headers), form=form or {})

    def ask(
        self,
        method: str,
        target: str,
        headers: Sequence[Header] = (),
        *,
        form: dict[str, Any] | None = None,
        chunks: Sequence[bytes] | None = None,
        host: str | None = None,
    ) -> Answer:
        body = urlencode(form).encode() if form is not None else b""
        said = [("Host", self.host if host is None else host), *headers]
        if form is not None:
            said += [("Content-Type", "application/x-www-form-urlencoded"), ("Content-Length", str(len(body)))]
        if self.cookie and not any(name.lower() == "cookie" for name, _ in headers):
            said.append(("Cookie", self.cookie))
        scope = self.scope(method, target, said)
        answer = asyncio.run(asked(self.app, scope, chunks if chunks is not None else [body]))
        if answer.header("set-cookie"):
            self.cookie = answer.cookie
        return answer

    def scope(self, method: str, target: str, headers: Sequence[Header]) -> dict[str, Any]:
        path, _, query = target.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": self.scheme,
            "path": self.root_path + unquote(path),
            "raw_path": (self.root_path + path).encode(),
            "query_string": query.encode(),
            "root_path": self.root_path,
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
            "client": (self.address, 40000),
            "server": ("127.0.0.1", 8600),
        }


async def asked(app: Any, scope: dict[str, Any], chunks: Sequence[bytes]) -> Answer:
    """Call the application once, and collect what it sends."""
    left = list(chunks)
    ended = asyncio.Event()
    answer = Answer(0, [], b"")

    async def receive() -> dict[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(name.decode(), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    ended.set()
    return answer
