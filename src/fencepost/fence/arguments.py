"""The call of an idempotent function: its key, and the fingerprint that tells it from other calls under that key."""

from __future__ import annotations

import hashlib
import inspect
import json
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from fencepost.core.identity import canonical_json
from fencepost.fence.work_key import is_uuid, of_decimal


@dataclass(frozen=True, slots=True)
class Bound:
    """The arguments of one call: the transaction, and the others as they were passed and by name."""

    tx: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    named: Mapping[str, Any]


class KeyedSignature:
    """A function whose first parameter is the transaction, and how its key is made."""

    def __init__(self, function: Callable[..., Any], key: str | Callable[..., str], *, name: str | None) -> None:
        self.name = name or getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
        _refuse_async(function, self.name)
        self._signature = inspect.signature(function)
        names = list(self._signature.parameters)
        if not names:
            raise TypeError(
                f"{self.name} has no parameters; the first one of an idempotent function is its transaction"
            )
        self._tx, *others = names
        self._key = key
        if isinstance(key, str):
            _check_template(key, others, self.name)
        elif not callable(key):
            raise TypeError(f"the key of {self.name} is a text or a function of its arguments, not {key!r}")

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Take a call apart; a `TypeError` says what does not fit, as calling the function would."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
        tx = named.pop(self._tx)
        is_positional = self._signature.parameters[self._tx].kind is not inspect.Parameter.KEYWORD_ONLY
        others = {name: value for name, value in bound.kwargs.items() if name != self._tx}
        return Bound(tx, bound.args[1:] if is_positional else bound.args, others, named)

    def key(self, bound: Bound) -> str:
        """Return the key of a call."""
        if isinstance(self._key, str):
            return self._key.format_map(bound.named)
        return self._key(*bound.args, **bound.kwargs)

    def fingerprint(self, bound: Bound) -> str:
        """Return what tells this call from others under the same key."""
        told = {name: _told(value, f"{name!r} of {self.name}") for name, value in bound.named.items()}
        return hashlib.sha256(canonical_json(["idempotent", self.name, told]).encode()).hexdigest()


def json_text(result: object, *, name: str) -> str:
    """Write a result as JSON; a `TypeError` says that it is none."""
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"what {name} returned cannot be kept as JSON to be returned again ({error}); nothing was written: return "
            "texts, numbers, lists and dicts of them, or nothing"
        ) from error
    return text


def _told(value: object, what: str) -> Any:
    """Return a value as JSON that is the same for equal values."""
    if isinstance(value, Enum):
        return _told(value.value, what)
    if isinstance(value, list | tuple):
        return [_told(each, what) for each in value]
    if isinstance(value, Mapping):
        return {"map": sorted([canonical_json(_told(name, what)), _told(each, what)] for name, each in value.items())}
    return value if value is None or isinstance(value, str | int | float) else _spelled(value, what)


def _spelled(value: object, what: str) -> dict[str, str]:
    if isinstance(value, Decimal) and value.is_finite():
        return {"decimal": of_decimal(value)}
    if isinstance(value, date):  # and datetime
        return {"time": value.isoformat()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if is_uuid(value):
        return {"uuid": str(value)}
    raise TypeError(
        f"argument {what} is or holds a {type(value).__name__}, by which calls cannot be compared; pass what "
        "identifies it: texts, numbers, dates, UUIDs, and lists and dicts of them"
    )


def _refuse_async(function: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is async, and an idempotent function is not: call a plain one in asyncio.to_thread")
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{name} is a generator, whose result cannot be kept; return a list")


def _check_template(template: str, known: list[str], name: str) -> None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise TypeError(f"the key {template!r} of {name} cannot be read: {error}") from None
    roots = [field.partition(".")[0].partition("[")[0] for field in fields]
    for root in roots:
        if root not in known:
            raise TypeError(
                f"the key {template!r} of {name} names {root or 'nothing'!r}; it can name: {', '.join(known)}"
            )
    if not roots:
        raise TypeError(
            f"the key {template!r} of {name} names none of its arguments, so every call would be the same one"
        )
