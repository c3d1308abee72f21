"""The fence as WSGI middleware, for Flask, Django and other WSGI applications.

::

    app.wsgi_app = WsgiFence(app.wsgi_app, marks=…)     # Flask; elsewhere application = WsgiFence(application, marks=…)

A `LeaseLost` that the application raises for its own request becomes a 409 response, unless the response has started.
Flask and Django convert every exception into a response themselves. There, an error handler gives the same response::

    @app.errorhandler(LeaseLost)                        # Flask
    def stale(lost):
        problem = request.environ["fencepost.fence"].problem(lost)
        return problem.body, problem.status, problem.headers
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fencepost.errors import LeaseLost
from fencepost.fence.http import PLACE, HttpFence, Problem, RequestFence
from fencepost.fence.http_header import NAME

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

_HEADER = f"HTTP_{NAME.upper().replace('-', '_')}"


class WsgiFence(HttpFence[App]):
    """Passes a writing request on to `app` only if its token is not stale; see `fencepost.fence.http`."""

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
    """The application's response. Producing any part of it may still raise `LeaseLost`."""

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
        """Close what the application returned, as WSGI requires."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()


def _refused(fence: RequestFence, lost: LeaseLost, start_response: StartResponse) -> bytes:
    # With exc_info, start_response raises the exception again if the response has started.
    return _begun(fence.problem(lost), start_response, sys.exc_info())


def _begun(problem: Problem, start_response: StartResponse, *failure: Any) -> bytes:
    start_response(f"{problem.status.value} {problem.status.phrase}", list(problem.headers.items()), *failure)
    return problem.body
