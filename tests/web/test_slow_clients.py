"""Clients that never finish their headers are closed; those that do are answered, also the second time."""

import asyncio

import uvicorn
from uvicorn.server import ServerState

from fencepost.web import slow_clients
from fencepost.web.slow_clients import BoundedProtocol

DEADLINE_S = 30.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def answers(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def talked(*said):
    """Connect, say these one after the other, each after an answer came, and return all until we are hung up on."""
    config, state = uvicorn.Config(answers, lifespan="off", timeout_keep_alive=20), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedProtocol(config, state, {}, loop), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        heard = b""
        for each in said:
            writer.write(each)
            if each.endswith(b"\r\n\r\n"):
                heard += await asyncio.wait_for(reader.readuntil(b"ok"), DEADLINE_S)
        heard += await asyncio.wait_for(reader.read(), DEADLINE_S)
        writer.close()
        return heard


def test_headers_that_do_not_come_to_their_end_are_given_up(monkeypatch):
    monkeypatch.setattr(slow_clients, "HEADERS_WITHIN_S", 0.05)
    assert asyncio.run(talked(b"GET / HTTP/1.1\r\nHost: ")) == b""
    assert asyncio.run(talked()) == b""
    assert asyncio.run(talked(REQUEST, REQUEST, b"GET / HT")).count(b"200 OK") == 2
