"""Refuses code that returns a generator or a coroutine instead of doing its work.

Calling a function with a `yield` runs nothing of it, and its items would be counted as written. And a result that can
be iterated only once is empty when the chunk is retried.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Iterator
from typing import Any

from fencepost.errors import InvalidBulk

_NOT_DONE = (Generator, AsyncGenerator, Awaitable)
_ONCE_ONLY = (Iterator, AsyncIterator, Awaitable)


def refuse_deferred(what: str, *, may_be_async: str = "", **functions: Any) -> None:
    """Refuse functions of a bulk job that only return a generator or a coroutine when they are called."""
    for name, function in functions.items():
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidBulk(
                f"{what}: {name}() has a yield, so that calling it does nothing; let it do its work and return. "
                "process() may return a list if an item becomes several things"
            )
        if name != may_be_async and is_async(function):
            raise InvalidBulk(f"{what}: {name}() is called in a thread and cannot be async; process() may be")


def is_async(function: Any) -> bool:
    """Whether it is a coroutine function, or an object whose `__call__` is one."""
    called = getattr(function, "__call__", None)  # noqa: B004 - its kind matters, not whether it exists
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def refuse_unwritten(returned: Any, step: str) -> None:
    """Refuse a result of `write` that means that it has not written. Cursors, which are iterable too, are allowed."""
    if isinstance(returned, _NOT_DONE):
        if isinstance(returned, Coroutine):
            returned.close()  # avoids the warning that it was never awaited
        raise InvalidBulk(_message("write", step, type(returned)))


def refuse_once_only(results: Iterable[Any], step: str) -> None:
    """Refuse results of `process` that a retry could not write."""
    for kind in set(map(type, results)):
        if issubclass(kind, _ONCE_ONLY):
            raise InvalidBulk(_message("process", step, kind))


def _message(function: str, step: str, kind: type) -> str:
    return (
        f"{function}() of step {step!r} returned a {kind.__name__}: its work is not done yet, and it cannot be "
        "iterated twice if the chunk is retried; return values, such as a list. Nothing of the chunk was written"
    )
