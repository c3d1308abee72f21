"""Requests to REST within this process: through the whole application, guard included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fencepost.core.problems import TYPES
from tests.web.asking import Browser, asked


@dataclass
class Got:
    """An answer."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def word(self) -> str:
        """The type of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self.text
        assert self.json["status"] == self.status
        assert self.json["type"] in TYPES
        return self.json["type"].removeprefix("urn:fencepost:")


class Api:
    """Sends requests with an API token."""

    def __init__(self, app: Any, secret: str | None, *, root_path: str = "", host: str = "127.0.0.1") -> None:
        self._browser = Browser(app, root_path=root_path, host=host)
        self._secret = secret

    def get(self, path: str, **query: Any) -> Got:
        return self.send("GET", path, query=query)

    def post(self, path: str, body: Any = None, **headers: str) -> Got:
        return self.send("POST", path, {} if body is None else body, headers)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
    ) -> Got:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        said = [("Host", self._browser.host), ("Content-Length", str(len(raw)))]
        said += [] if self._secret is None else [("Authorization", f"Bearer {self._secret}")]
        has_kind = headers is not None and "content-type" in headers
        said += [] if body is None or has_kind else [("Content-Type", "application/json")]
        said += [(name.replace("_", "-"), value) for name, value in (headers or {}).items()]
        target = f"/api/v1{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        got = asyncio.run(asked(self._browser.app, self._browser.scope(method, target, said), [raw]))
        return Got(got.status, dict(got.headers), got.text)
