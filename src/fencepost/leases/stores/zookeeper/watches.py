"""Waits until the holder of a name is gone, with one ZooKeeper watch per name for all waiters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.core.runtime import Flag, Runtime


class Watches:
    """The waiters for each path. kazoo cannot remove a watch, so one function per path serves all waiters."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._waiting: dict[str, set[Flag]] = {}
        self._callbacks: dict[str, Callable[[Any], None]] = {}

    def join(self, path: str) -> tuple[Flag, Callable[[Any], None]]:
        """Return a flag that is set when `path` changes, and the function to pass to kazoo as its watch."""
        changed = self._runtime.event()
        with self._lock:
            self._waiting.setdefault(path, set()).add(changed)
            return changed, self._callbacks.setdefault(path, partial(self._changed, path))

    def leave(self, path: str, changed: Flag, *, is_watched: bool) -> None:
        """Stop waiting. `is_watched`: whether kazoo has the function, and will call it at some time."""
        with self._lock:
            waiting = self._waiting.get(path, set())
            waiting.discard(changed)
            if not waiting:
                self._waiting.pop(path, None)
                if not is_watched:
                    self._callbacks.pop(path, None)

    def _changed(self, path: str, _: Any) -> None:
        with self._lock:
            self._callbacks.pop(path, None)
            waiting = self._waiting.pop(path, set())
        for changed in waiting:
            changed.set()
