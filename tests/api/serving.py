"""The real application on a real port, for clients that speak HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from testbed.wait import until


@contextmanager
def served(pages: Any) -> Iterator[str]:
    """Serve an application until the block ends; yield its address."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        config = uvicorn.Config(pages, log_config=None, lifespan="off", access_log=False, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        until(lambda: server.started, 30, what="it listens")
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
