"""Starting and stopping the node of this process. A forked child is not a node until it is started itself.

A fork copies the object but none of its threads. So a child begins as if nothing had been started, and never uses
what its parent opened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from fencepost.core.duration import Duration, seconds
from fencepost.core.runtime import Runtime
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.app.composing import Composed

_AT_EXIT_S = 1.0  # the interpreter is ending: what has not ended by then is left to other nodes


class Lifecycle:
    """Starts and stops the node of this process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._changing = app.runtime.lock()
        self._composed: Composed | None = None
        self._inherited: list[Composed] = []  # kept, so that a child does not close its parent's connections

    @property
    def runtime(self) -> Runtime:
        """The clocks, threads and files of the application."""
        return self._app.runtime

    @property
    def is_running(self) -> bool:
        """Whether this process is a node."""
        composed = self._composed
        return composed is not None and composed.node.is_running

    def start(self, *, processes: bool = False) -> None:
        """Become a node."""
        refuse_green_threads()
        with self._changing:
            if self._composed is not None:
                return
            self._composed = self._started(processes)
        # Registered after the lease stores, so that the node leaves before they close.
        self._app.runtime.at_exit(self, self._leave)

    def _started(self, processes: bool) -> Composed:
        if processes:
            from fencepost.app.worker_processes import start_process_node  # noqa: PLC0415 - few need it

            return start_process_node(self._app)
        from fencepost.app.composing import start_node  # noqa: PLC0415 - not needed to enqueue

        return start_node(self._app)

    def stop(self, grace: Duration) -> None:
        """Be none any more."""
        grace_s = seconds(grace, what="grace")
        with self._changing:
            composed, self._composed = self._composed, None
        if composed is not None:
            composed.stop(grace_s)

    def wake(self) -> None:
        """Have the node look for work now: this process has requested a run."""
        composed = self._composed
        if composed is not None:
            composed.node.wake()

    def forget(self) -> None:
        """Reset the state in a forked child: nothing is started here."""
        self._changing = self._app.runtime.lock()
        composed, self._composed = self._composed, None
        if composed is not None:
            composed.node.forget()
            self._inherited.append(composed)

    def _leave(self) -> None:
        with suppress(Exception):  # the process ends; the other nodes take over what is left
            self.stop(_AT_EXIT_S)


class Running:
    """A block in which this process is a node. Enter it once, with ``with`` or ``async with``."""

    def __init__(self, lifecycle: Lifecycle, grace: Duration, *, processes: bool = False) -> None:
        seconds(grace, what="grace")
        self._lifecycle = lifecycle
        self._grace = grace
        self._processes = processes

    def __enter__(self) -> None:
        self._lifecycle.start(processes=self._processes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lifecycle.stop(self._grace)

    async def __aenter__(self) -> None:
        await self._beside(lambda: self._lifecycle.start(processes=self._processes))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._beside(lambda: self._lifecycle.stop(self._grace))

    async def _beside(self, work: Callable[[], None]) -> None:
        from fencepost.leases.async_use import in_thread  # noqa: PLC0415 - importing asyncio takes 30 ms

        await in_thread(self._lifecycle.runtime, work)


def refuse_green_threads() -> None:
    """Refuse to start where threads were replaced by coroutines: one busy job would stop all of them."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        raise ConfigurationError(_GREEN.format("gevent"))
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise ConfigurationError(_GREEN.format("eventlet"))


_GREEN = (
    "app.start() needs real threads, and {} has replaced them: one busy job would stop the heartbeat of all. Run the "
    "jobs in a process of their own with 'fencepost run', and only enqueue here"
)
