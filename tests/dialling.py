"""Clients that come and go while something is done to whom they dial."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def dialled(address: tuple[str, int]) -> Iterator[None]:
    """Somebody connects and leaves, again and again."""
    is_over = threading.Event()

    def dial() -> None:
        while not is_over.is_set():
            with suppress(OSError):
                socket.create_connection(address, 5).close()

    threads = [threading.Thread(target=dial) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
