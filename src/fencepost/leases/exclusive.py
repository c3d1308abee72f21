"""The decorator: ``@store.exclusive("report:{account}")`` runs a function only while it holds the lock.

If another holder has the lock, or the due time is already done, the call is *skipped*: an event is emitted, and the
call returns a `Skipped`, which is false and contains the reason. For a scheduled function this is normal. With
``on_skip="raise"`` it raises `LockHeld` or `TickDone` instead; with any other value it returns that value.

A lock alone does not make a due time run once: if a second scheduler calls after a short job has ended, the lock is
free. Use ``tick=`` for that, or ``at_least=`` if there is no due time.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from string import Formatter
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from fencepost.core.events import Event, What
from fencepost.core.names import lock_name
from fencepost.errors import InvalidName, InvalidTick, NotAcquired
from fencepost.leases.exclusive_options import Due
from fencepost.leases.lock import Lock

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

MakeLock = Callable[[str, Due | None], Lock]


class Skipped(str):
    """The function did not run. False in a condition. It is a text with the reason, so any task queue can store it."""

    lock: str
    reason: str

    def __new__(cls, lock: str, reason: str) -> Self:
        made = super().__new__(cls, f"skipped: {reason}")
        made.lock, made.reason = lock, reason
        return made

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Skipped(lock={self.lock!r}, reason={self.reason!r})"

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.lock, self.reason


class Exclusive(Generic[S]):
    """Makes a function exclusive; the lock's name may depend on its arguments. A skipped call returns an `S`."""

    def __init__(
        self,
        template: str,
        make_lock: MakeLock,
        emit: Callable[[Event], None],
        *,
        tick: Due | Callable[..., Due | None] | None = None,
        on_skip: object = "return",
    ) -> None:
        self._template = template
        self._make_lock = make_lock
        self._emit = emit
        self._tick = tick
        self._on_skip = on_skip

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | S]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R | S]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a plain or an ``async def`` function."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} is a generator; lock inside it with `with store.lock(…)` instead")
        signature = inspect.signature(function)
        _check_fields(self._template, signature, "lock name", InvalidName)
        if isinstance(self._tick, str):
            _check_fields(self._tick, signature, "tick", InvalidTick)
        wrap = self._wrap_async if inspect.iscoroutinefunction(function) else self._wrap
        return wrap(function, signature)

    def _wrap(self, function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            lock = self._lock_for(signature, args, kwargs)
            try:
                lease = lock.acquire()
            except NotAcquired as refusal:
                return self._skip(lock.name, refusal)
            with lease:
                return _finished(function(*args, **kwargs), function)

        return run

    def _wrap_async(self, function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            lock = self._lock_for(signature, args, kwargs)
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

    def _skip(self, name: str, refusal: NotAcquired) -> Any:
        """Return the result of a skipped call, or raise `refusal`. Called while `refusal` is being handled."""
        self._emit(Event(What.SKIPPED, lock=name, reason=str(refusal)))
        word = self._on_skip if isinstance(self._on_skip, str) else ""  # other types may define their own ==
        if word == "raise":
            raise refusal
        return Skipped(name, str(refusal)) if word == "return" else self._on_skip

    def _lock_for(self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Lock:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        tick = self._tick(*args, **kwargs) if callable(self._tick) else self._tick
        if isinstance(tick, str):
            tick = _filled(tick, bound.arguments)
        return self._make_lock(lock_name(self._template.format_map(bound.arguments)), tick)


def _finished(result: Any, function: Callable[..., Any]) -> Any:
    """Return the result of a call; refuse a coroutine or generator, whose work would run without the lock."""
    if inspect.iscoroutine(result):
        result.close()
    elif not (inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return result
    raise TypeError(
        f"{function!r} returned a {type(result).__name__}, whose work would run after the lock is released; decorate "
        "an `async def` function or one that does its work when it is called, or use `with store.lock(…)` inside it"
    )


def has_fields(template: object) -> bool:
    """Whether `template` is a text with ``{parameter}`` fields."""
    return isinstance(template, str) and any(field is not None for _, field, _, _ in Formatter().parse(template))


def _filled(template: str, arguments: Mapping[str, Any]) -> Any:
    """Replace the ``{parameter}`` fields. A template that is a single field returns that argument unchanged."""
    [(before, field, spec, conversion), *more] = [*Formatter().parse(template), ("", None, "", None)]
    if field is not None and not (before or spec or conversion) and len(more) == 1:
        return Formatter().get_field(field, (), arguments)[0]
    return template.format_map(arguments)


def _check_fields(template: str, signature: inspect.Signature, what: str, error: type[ValueError]) -> None:
    for _, field, _, _ in Formatter().parse(template):
        if field is None:
            continue
        base = field.split(".")[0].split("[")[0]
        if base not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise error(f"{what} {template!r} uses {{{field}}}, which is not a parameter (there are: {known})")
