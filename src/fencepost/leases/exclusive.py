"""The decorator: ``@store.exclusive("report:{account}")`` runs a function only while it holds the lock.

When the lock is held elsewhere the call is *skipped*: it returns a `Skipped`, which is false and says why, and
an event is emitted. Nothing is raised, because for a scheduled function this is the normal course.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Any, ParamSpec, TypeVar, cast

from fencepost.core.events import Event, What
from fencepost.core.names import lock_name
from fencepost.errors import InvalidName, NotAcquired
from fencepost.leases.lock import Lock

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Skipped:
    """The function did not run. False in a condition."""

    lock: str
    reason: str

    def __bool__(self) -> bool:
        return False


class Exclusive:
    """Makes a function exclusive under the lock that its arguments name."""

    def __init__(self, template: str, make_lock: Callable[[str], Lock], emit: Callable[[Event], None]) -> None:
        self._template = template
        self._make_lock = make_lock
        self._emit = emit

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap a plain or an ``async def`` function."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} is a generator; lock inside it with `with store.lock(…)` instead")
        signature = inspect.signature(function)
        self._check_fields(signature)
        wrap = self._wrap_async if inspect.iscoroutinefunction(function) else self._wrap
        return cast("Callable[P, R]", wrap(function, signature))

    def _wrap(self, function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            lock = self._make_lock(self._name(signature, args, kwargs))
            try:
                lease = lock.acquire()
            except NotAcquired as refusal:
                return self._skip(lock.name, refusal)
            with lease:
                return function(*args, **kwargs)

        return run

    def _wrap_async(self, function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            lock = self._make_lock(self._name(signature, args, kwargs))
            got_it = False
            try:
                async with lock:
                    got_it = True
                    return await function(*args, **kwargs)
            except NotAcquired as refusal:
                if got_it:
                    raise
                return self._skip(lock.name, refusal)

        return run

    def _skip(self, name: str, refusal: NotAcquired) -> Skipped:
        self._emit(Event(What.SKIPPED, lock=name, reason=str(refusal)))
        return Skipped(name, str(refusal))

    def _name(self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return lock_name(self._template.format_map(bound.arguments))

    def _check_fields(self, signature: inspect.Signature) -> None:
        for _, field, _, _ in Formatter().parse(self._template):
            if field is None:
                continue
            base = field.split(".")[0].split("[")[0]
            if base not in signature.parameters:
                known = ", ".join(signature.parameters) or "none"
                raise InvalidName(f"lock name {self._template!r} uses {{{field}}}, which is no parameter ({known})")
