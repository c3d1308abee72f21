"""Debian's Chromium, driven by Playwright, and pages served on a free port of the loopback by a thread."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from fencepost.threaded import ThreadedRuntime
from fencepost.web.serving import ListenOn, _bound
from testbed.server import Missing

DEADLINE_MS = 60_000
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--font-render-hinting=none", "--disable-lcd-text")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start one browser; raise `Missing` where it is not installed."""
    program = shutil.which("chromium")
    if program is None:
        raise Missing("chromium is not installed; try: python -m testbed.provision")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """Serve an ASGI application; yield its address."""
    with _bound(ListenOn("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(application, lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = ThreadedRuntime().spawn("pages", lambda: server.run(sockets=[bound]))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        task.join(30)
