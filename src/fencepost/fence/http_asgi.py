"""The fence as ASGI middleware, for FastAPI, Starlette, Django and other ASGI applications. Needs asyncio.

::

    app = AsgiFence(app, marks=…)                       # or, with Starlette: app.add_middleware(AsgiFence, marks=…)

A `LeaseLost` that the application raises for its own request becomes a 409 response, unless the response has started.
This needs a framework that lets the exception through to the middleware: with Starlette and FastAPI, use
``add_middleware``. Connections other than HTTP, such as WebSockets, are not checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fencepost.errors import LeaseLost
from fencepost.fence.http import PLACE, HttpFence, Problem, RequestFence
from fencepost.fence.http_header import NAME

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEADER = NAME.lower().encode()


class AsgiFence(HttpFence[App]):
    """Passes a writing request on to `app` only if its token is not stale; see `fencepost.fence.http`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._gate.guards(scope["method"]):
            await self._app(scope, receive, send)
            return
        verdict = await self._judged(_header(scope))
        if isinstance(verdict, Problem):
            await _answer(verdict, send)
        elif verdict is None:
            await self._app(scope, receive, send)
        else:
            await self._fenced(verdict, scope, receive, send)

    async def _judged(self, header: str | None) -> RequestFence | Problem | None:
        if self._gate.marks.blocks:
            return await asyncio.to_thread(self._gate.judge, header)
        return self._gate.judge(header)

    async def _fenced(self, fence: RequestFence, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app({**scope, PLACE: fence}, receive, noting)
        except LeaseLost as lost:
            if has_begun:
                raise
            await _answer(fence.problem(lost), send)


def _header(scope: Scope) -> str | None:
    values = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == _HEADER]
    return ", ".join(values) if values else None


async def _answer(problem: Problem, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": int(problem.status), "headers": headers})
    await send({"type": "http.response.body", "body": problem.body})
