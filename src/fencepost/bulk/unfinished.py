"""What a user's code returned instead of doing its work: a generator, or something that nobody has awaited.

Calling a function with a `yield` runs nothing of it; its items would be counted as written. And a result that can be
gone through only once has nothing left when the chunk is tried again.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Iterator
from typing import Any

from fencepost.errors import InvalidBulk

_NOT_DONE = (Generator, AsyncGenerator, Awaitable)
_ONCE_ONLY = (Iterator, AsyncIterator, Awaitable)


def refuse_deferred(what: str, *, may_be_async: str = "", **functions: Any) -> None:
    """Refuse functions of a bulk job that, when they are called, only promise to do something."""
    for name, function in functions.items():
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidBulk(
                f"{what}: {name}() has a yield, so that calling it does nothing; let it do its work and return, "
                "process() a list where an item becomes several things"
            )
        if name != may_be_async and is_async(function):
            raise InvalidBulk(f"{what}: {name}() is called in a plain thread and cannot be async; process() may be")


def is_async(function: Any) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    called = getattr(function, "__call__", None)  # noqa: B004 - what it is, not whether it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def refuse_unwritten(returned: Any, step: str) -> None:
    """Refuse what `write` returned if that means that it has not written. Cursors, which iterate as well, may be."""
    if isinstance(returned, _NOT_DONE):
        if isinstance(returned, Coroutine):
            returned.close()  # so that nobody is warned of it, somewhere else, that it was never awaited
        raise InvalidBulk(_message("write", step, type(returned)))


def refuse_once_only(results: Iterable[Any], step: str) -> None:
    """Refuse what `process` returned if a second try could not write it."""
    for kind in set(map(type, results)):
        if issubclass(kind, _ONCE_ONLY):
            raise InvalidBulk(_message("process", step, kind))


def _message(function: str, step: str, kind: type) -> str:
    return (
        f"{function}() of step {step!r} returned a {kind.__name__}: its work is not done by then, and it cannot be "
        "gone through twice if the chunk is tried again; let it return values, such as a list. Nothing of the chunk "
        "was written"
    )
