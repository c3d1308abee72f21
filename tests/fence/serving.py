"""Services on real sockets for the tests of the HTTP fence, and a client that says what it was answered."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import uvicorn

from fencepost.core.fencing import FencingToken
from fencepost.fences import fence_headers

KEY = "job:settle"


def token(number: int, grant_id: str | None = None, key: str = KEY) -> FencingToken:
    return FencingToken(key, number, grant_id or f"grant-{number}", f"node-{number}")


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def status_code(self) -> int:
        return self.status

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Service:
    """Where it listens, and what its application wrote, in order."""

    port: int
    written: list[int]

    def send(self, method: str, headers: Mapping[str, str] | None = None, path: str = "/") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, body=b"x" * 1000, headers=dict(headers or {}))
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, answer.read())

    def write(self, who: FencingToken) -> Answer:
        return self.send("POST", fence_headers(who))


Effect = Callable[[Any, list[int]], None]
"""What an application does with its request's fence; the second argument is what was written."""


def append(fence: Any, written: list[int]) -> None:
    written.append(0 if fence is None else fence.fencing.token)


@contextlib.contextmanager
def asgi_service(wrap: Callable[[Any], Any], effect: Effect = append) -> Iterator[Service]:
    written: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        while (await receive()).get("more_body"):
            pass
        await asyncio.to_thread(effect, scope.get("fencepost.fence"), written)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"written"})

    config = uvicorn.Config(wrap(app), port=0, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    listening = config.bind_socket()
    listening.listen(64)  # so that nobody is refused who comes before it is ready
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield Service(listening.getsockname()[1], written)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def wsgi_service(wrap: Callable[[Any], Any], effect: Effect = append, *, lazily: bool = False) -> Iterator[Service]:
    written: list[int] = []

    def app(environ: Any, start_response: Any) -> Any:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if not lazily:
            effect(environ.get("fencepost.fence"), written)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return parts(environ)

    def parts(environ: Any) -> Iterator[bytes]:
        if lazily:
            effect(environ.get("fencepost.fence"), written)
        yield b"written"

    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIServer

    class Threaded(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    with make_server("127.0.0.1", 0, wrap(app), server_class=Threaded, handler_class=_Silent) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield Service(server.server_port, written)
        finally:
            server.shutdown()
            thread.join(20)
