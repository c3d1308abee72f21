"""The call of an idempotent function: its key, and a fingerprint that differs from other calls with the same key."""

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
    """The arguments of one call: the transaction, and the others both as passed and by name."""

    tx: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    named: Mapping[str, Any]


class KeyedSignature:
    """A function whose first parameter is the transaction, and the rule that makes its key."""

    def __init__(self, function: Callable[..., Any], key: str | Callable[..., str], *, name: str | None) -> None:
        self.name = name or getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
        _refuse_async(function, self.name)
        self._signature = inspect.signature(function)
        names = list(self._signature.parameters)
        if not names:
            raise TypeError(
                f"{self.name} has no parameters; the first parameter of an idempotent function must be the transaction"
            )
        self._tx, *others = names
        self._key = key
        if isinstance(key, str):
            _check_template(key, others, self.name)
        elif not callable(key):
            raise TypeError(f"the key of {self.name} must be a string or a function of its arguments, not {key!r}")

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Bind a call's arguments. Raise `TypeError` if they do not fit, as calling the function would."""
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
        """Return a hash of the function's name and arguments."""
        arguments = {name: _comparable(value, f"{name!r} of {self.name}") for name, value in bound.named.items()}
        return hashlib.sha256(canonical_json(["idempotent", self.name, arguments]).encode()).hexdigest()


def json_text(result: object, *, name: str) -> str:
    """Return a result as JSON. Raise `TypeError` if it cannot be stored as JSON."""
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"the result of {name} cannot be stored as JSON ({error}); nothing was written; return "
            "strings, numbers, lists and dicts of them, or nothing"
        ) from error
    return text


def _comparable(value: object, what: str) -> Any:
    """Return a JSON value that is the same for equal values."""
    if isinstance(value, Enum):
        return _comparable(value.value, what)
    if isinstance(value, list | tuple):
        return [_comparable(each, what) for each in value]
    if isinstance(value, Mapping):
        items = ([canonical_json(_comparable(name, what)), _comparable(each, what)] for name, each in value.items())
        return {"map": sorted(items)}
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
        f"argument {what} is or contains a {type(value).__name__}, by which calls cannot be compared; pass what "
        "identifies it: strings, numbers, dates, UUIDs, and lists and dicts of them"
    )


def _refuse_async(function: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is async; declare an idempotent function with def, and call it in asyncio.to_thread")
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{name} is a generator, whose result cannot be stored; return a list")


def _check_template(template: str, known: list[str], name: str) -> None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise TypeError(f"the key {template!r} of {name} is not a valid format string: {error}") from None
    roots = [field.partition(".")[0].partition("[")[0] for field in fields]
    for root in roots:
        if root not in known:
            raise TypeError(
                f"the key {template!r} of {name} refers to {root or 'nothing'!r}; it can refer to: {', '.join(known)}"
            )
    if not roots:
        raise TypeError(
            f"the key {template!r} of {name} refers to none of its arguments, so all calls would have the same key"
        )
