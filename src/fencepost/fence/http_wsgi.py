"""The fence as WSGI middleware, for Flask, Django and whatever else speaks it.

::

    app.wsgi_app = WsgiFence(app.wsgi_app, marks=…)     # Flask; elsewhere application = WsgiFence(application, marks=…)

A `LeaseLost` that the application raises for its own request becomes a 409, unless the answer has begun. Flask and
Django answer every exception themselves; there, a handler gives the same answer::

    @app.errorhandler(LeaseLost)                        # Flask
    def stale(lost):
        problem = request.environ["fencepost.fence"].problem(lost)
        return problem.body, problem.status, problem.headers
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from fencepost.errors import LeaseLost
from fencepost.fence.http import PLACE, Problem, RequestFence, RequestGate
from fencepost.fence.http_header import NAME
from fencepost.fence.marks import Marks

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

_HEADER = f"HTTP_{NAME.upper().replace('-', '_')}"


class WsgiFence:
    """Lets requests that write through to `app` only with a token that is not stale: see `fencepost.fence.http`."""

    def __init__(
        self,
        app: App,
        *,
        marks: Marks,
        required: bool = True,
        methods: Collection[str] | None = None,
        keys: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._gate = RequestGate(marks, required=required, methods=methods, keys=keys)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if not self._gate.guards(environ["REQUEST_METHOD"]):
            return self._app(environ, start_response)
        verdict = self._gate.judge(environ.get(_HEADER))
        if isinstance(verdict, Problem):
            return [_begun(verdict, start_response)]
        if verdict is None:
            return self._app(environ, start_response)
        return self._fenced(verdict, {**environ, PLACE: verdict}, start_response)

    def _fenced(self, fence: RequestFence, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            chunks = self._app(environ, start_response)
        except LeaseLost as lost:
            return [_refused(fence, lost, start_response)]
        return _Chunks(chunks, fence, start_response)


class _Chunks:
    """The application's answer, of which each part may yet find its writer stale."""

    def __init__(self, chunks: Iterable[bytes], fence: RequestFence, start_response: StartResponse) -> None:
        self._chunks = chunks
        self._fence = fence
        self._start_response = start_response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks
        except LeaseLost as lost:
            yield _refused(self._fence, lost, self._start_response)

    def close(self) -> None:
        """Close what the application returned, as servers do."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()


def _refused(fence: RequestFence, lost: LeaseLost, start_response: StartResponse) -> bytes:
    return _begun(fence.problem(lost), start_response, sys.exc_info())  # which raises it again if an answer has begun


def _begun(problem: Problem, start_response: StartResponse, *failure: Any) -> bytes:
    start_response(f"{problem.status.value} {problem.status.phrase}", list(problem.headers.items()), *failure)
    return problem.body
