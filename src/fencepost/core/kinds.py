"""The kinds of job parameters, and how each is stored in the ledger and loaded from it.

The ledger stores JSON. A kind checks a value and converts it to JSON (`store`), parses text from a command line
(`read`), and converts JSON to the value that the function expects (`load`). Dates, datetimes, decimals and UUIDs are
stored as text, and members of an enumeration by their value (or by their name if a value is not JSON).

**Not promised.** A datetime keeps its offset from UTC, not the name of its time zone. A union uses the first member
that fits, so a value stored as one member may be loaded as another.
"""

from __future__ import annotations

import collections.abc
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, NoReturn, Protocol
from uuid import UUID  # noqa: TID251 - only the type; the Runtime generates ids

from fencepost.core.secret import Secret, secret_name
from fencepost.core.texts import shown
from fencepost.errors import InvalidParameters

Json = None | bool | int | float | str | list[Any] | dict[str, Any]
DEEPEST = 64  # levels of nesting: far below Python's recursion limit
LARGEST_BITS = 4096  # of a whole number: Python refuses to convert much larger ones to text


class ParameterKind(Protocol):
    """The kind of one parameter."""

    @property
    def spelled(self) -> str:
        """The kind as part of a sentence: "a whole number"."""
        ...

    @property
    def converts(self) -> bool:
        """Whether `load` changes the value."""
        ...

    def store(self, value: object, path: str) -> Json:
        """Convert a value, or its JSON form, to JSON; else raise `InvalidParameters` with its `path`."""
        ...

    def read(self, text: str, path: str) -> Json:
        """Convert text from a command line to JSON."""
        ...

    def load(self, stored: Any) -> Any:
        """Convert JSON to the value that the function expects."""
        ...

    def to_json(self) -> Json:
        """Describe the kind, for a process that has not imported the function."""
        ...


def _refuse(path: str, kind: ParameterKind, value: object) -> NoReturn:
    raise InvalidParameters(f"{path} must be {kind.spelled}, not {shown(value)}")


def json_value(value: object, path: str, depth: int = 0) -> Json:
    """Return `value` as plain JSON, or raise `InvalidParameters` with the path of the part that is not JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and value.bit_length() <= LARGEST_BITS:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if depth >= DEEPEST:
        raise InvalidParameters(f"{path} is nested more than {DEEPEST} deep")
    if isinstance(value, list | tuple):
        return [json_value(each, f"{path}[{index}]", depth + 1) for index, each in enumerate(value)]
    if isinstance(value, dict):
        return {_key(key, path): json_value(each, f"{path}[{key!r}]", depth + 1) for key, each in value.items()}
    hint = "; annotate the parameter with its type" if isinstance(value, date | Decimal | UUID | Enum) else ""
    raise InvalidParameters(f"{path} cannot be stored as JSON: {shown(value)} ({type(value).__name__}){hint}")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidParameters(f"{path} cannot be stored as JSON: its key {shown(key)} is not text")
    return str.__str__(key)


def parsed(text: str) -> Json:
    """Parse JSON, or raise `ValueError`; also for NaN, which only Python accepts as JSON."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not valid JSON")

    try:
        value: Json = json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON value: for parameters without an annotation, or with one that cannot be resolved."""

    spelled: str = "JSON"
    converts: bool = False

    def store(self, value: object, path: str) -> Json:
        return json_value(value, path)

    def read(self, text: str, path: str) -> Json:
        """Parse the text as JSON if it is valid JSON; otherwise keep it as text."""
        try:
            return parsed(text)
        except ValueError:
            return text

    def load(self, stored: Any) -> Any:
        return stored

    def to_json(self) -> Json:
        return "any"


@dataclass(frozen=True, slots=True)
class Plain:
    """A value that JSON can represent directly: a number, a text, a boolean, or null."""

    name: str
    spelled: str
    accepts: Callable[[object], bool] = field(repr=False)
    from_text: Callable[[str], Json] = field(repr=False)
    converts: bool = False

    def store(self, value: object, path: str) -> Json:
        return json_value(value, path) if self.accepts(value) else _refuse(path, self, value)

    def read(self, text: str, path: str) -> Json:
        try:
            return self.store(self.from_text(text), path)
        except (ValueError, KeyError):
            _refuse(path, self, text)

    def load(self, stored: Any) -> Any:
        return stored

    def to_json(self) -> Json:
        return self.name


@dataclass(frozen=True, slots=True)
class Written:
    """A value that is stored as text and converted back when the function is called."""

    name: str
    spelled: str
    of: Callable[[Any], Any] = field(repr=False)  # converts the value itself, or its text
    write: Callable[[Any], str] = field(repr=False)
    converts: bool = True

    def store(self, value: object, path: str) -> Json:
        try:
            return self.write(self.of(value))
        except (TypeError, ValueError, InvalidOperation):
            _refuse(path, self, value)

    def read(self, text: str, path: str) -> Json:
        return self.store(text.strip(), path)

    def load(self, stored: Any) -> Any:
        return self.of(stored)

    def to_json(self) -> Json:
        return self.name


@dataclass(frozen=True, slots=True)
class SecretName:
    """A `Secret`: its name is stored, and the function gets the secret. What was given is in no error message."""

    name: str = "secret"
    spelled: str = "the name of a secret"
    converts: bool = True

    def store(self, value: object, path: str) -> Json:
        try:
            return value.name if isinstance(value, Secret) else secret_name(value)
        except InvalidParameters as error:
            # No colon after the path: what follows `'api_key':` would be masked as its value.
            raise InvalidParameters(f"{path} takes a secret, and {error}") from None

    def read(self, text: str, path: str) -> Json:
        return self.store(text.strip(), path)

    def load(self, stored: Any) -> Any:
        return Secret(stored)

    def to_json(self) -> Json:
        return self.name


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few values: those of a `Literal`, or the members of an enumeration under their names."""

    choices: tuple[tuple[str, Json], ...]  # (name or text, stored value) of each choice
    enum: type[Enum] | None = None
    is_enum: bool = False
    by_name: bool = False

    @property
    def spelled(self) -> str:
        return "one of " + ", ".join(repr(kept) for _, kept in self.choices)

    @property
    def converts(self) -> bool:
        return self.enum is not None

    def store(self, value: object, path: str) -> Json:
        is_member = self.enum is not None and isinstance(value, self.enum)
        for name, kept in self.choices:
            # Types are compared because True equals 1.
            if getattr(value, "name", None) == name if is_member else (kept == value and type(kept) is type(value)):
                return kept
        _refuse(path, self, value)

    def read(self, text: str, path: str) -> Json:
        """Accept the value as it is written, or else its name."""
        for _, kept in self.choices:
            if text == (kept if isinstance(kept, str) else json.dumps(kept)):
                return kept
        for name, kept in self.choices:
            if text == name:
                return kept
        _refuse(path, self, text)

    def load(self, stored: Any) -> Any:
        if self.enum is None:
            return stored
        return self.enum[stored] if self.by_name else self.enum(stored)

    def to_json(self) -> Json:
        return {"enum" if self.is_enum else "literal": [list(each) for each in self.choices]}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, each item of one kind."""

    item: ParameterKind
    spelled: str = "a list"

    @property
    def converts(self) -> bool:
        return self.item.converts

    def store(self, value: object, path: str) -> Json:
        if not isinstance(value, list | tuple):
            _refuse(path, self, value)
        return [self.item.store(each, f"{path}[{index}]") for index, each in enumerate(value)]

    def read(self, text: str, path: str) -> Json:
        """Parse JSON, or items separated by commas."""
        if text.lstrip().startswith("["):
            return self.store(_parsed_as(self, text, path), path)
        words = text.split(",") if text.strip() else []
        return [self.item.read(word.strip(), f"{path}[{index}]") for index, word in enumerate(words)]

    def load(self, stored: Any) -> Any:
        return [self.item.load(each) for each in stored]

    def to_json(self) -> Json:
        return {"list": self.item.to_json()}


@dataclass(frozen=True, slots=True)
class DictOf:
    """A dictionary with texts as keys, each value of one kind."""

    value: ParameterKind
    spelled: str = "a dictionary"

    @property
    def converts(self) -> bool:
        return self.value.converts

    def store(self, value: object, path: str) -> Json:
        if not isinstance(value, collections.abc.Mapping):
            _refuse(path, self, value)
        return {_key(key, path): self.value.store(each, f"{path}[{key!r}]") for key, each in value.items()}

    def read(self, text: str, path: str) -> Json:
        return self.store(_parsed_as(self, text, path), path)

    def load(self, stored: Any) -> Any:
        return {key: self.value.load(each) for key, each in stored.items()}

    def to_json(self) -> Json:
        return {"dict": self.value.to_json()}


@dataclass(frozen=True, slots=True)
class Either:
    """A union: uses the first of its kinds that fits."""

    kinds: tuple[ParameterKind, ...]

    @property
    def spelled(self) -> str:
        return " or ".join(kind.spelled for kind in self.kinds)

    @property
    def converts(self) -> bool:
        return any(kind.converts for kind in self.kinds)

    def store(self, value: object, path: str) -> Json:
        stored: Json = self._first(lambda kind: kind.store(value, path), self.kinds, path, value)
        return stored

    def read(self, text: str, path: str) -> Json:
        """Try text last, because it accepts every input."""
        in_order = sorted(self.kinds, key=lambda kind: kind is TEXT)
        stored: Json = self._first(lambda kind: kind.read(text, path), in_order, path, text)
        return stored

    def load(self, stored: Any) -> Any:
        return self._first(lambda kind: kind.load(kind.store(stored, "")), self.kinds, "the stored value", stored)

    def to_json(self) -> Json:
        return {"either": [kind.to_json() for kind in self.kinds]}

    def _first(
        self, attempt: Callable[[ParameterKind], Any], kinds: Iterable[ParameterKind], path: str, value: object
    ) -> Any:
        for kind in kinds:
            try:
                return attempt(kind)
            except InvalidParameters:
                continue
        if SECRET in self.kinds:  # what was given may be its value, by mistake
            raise InvalidParameters(f"{path} must be {self.spelled}")
        _refuse(path, self, value)


def _parsed_as(kind: ParameterKind, text: str, path: str) -> Json:
    try:
        return parsed(text)
    except ValueError:
        raise InvalidParameters(f"{path} must be {kind.spelled}, written as JSON, not {shown(text)}") from None


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        raise TypeError("a datetime is not a date")
    return value if isinstance(value, date) else date.fromisoformat(value)


def _datetime(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float | str):
        raise TypeError("not a number")
    number = Decimal(repr(value) if isinstance(value, float) else value)
    if not number.is_finite():
        raise ValueError("not finite")
    return number


def _uuid(value: Any) -> UUID:
    if not isinstance(value, UUID | str):
        raise TypeError("not a UUID")
    return value if isinstance(value, UUID) else UUID(value)


def _int(text: str) -> int:
    if not text.strip().lstrip("+-").isdigit():  # int() would accept 1_000
        raise ValueError("not a whole number")
    return int(text)


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_NOTHING = {"null": None}

ANYTHING = Anything()
WHOLE = Plain("int", "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool), _int)
NUMBER = Plain("float", "a number", lambda value: WHOLE.accepts(value) or _is_finite(value), float)
TEXT = Plain("str", "a text", lambda value: isinstance(value, str), lambda text: text)
TRUTH = Plain("bool", "true or false", lambda value: isinstance(value, bool), lambda text: _TRUTHS[text.lower()])
NOTHING = Plain("null", "null", lambda value: value is None, lambda text: _NOTHING[text.lower()])
DATE = Written("date", "a date such as 2026-01-31", _date, date.isoformat)
DATETIME = Written("datetime", "a time such as 2026-01-31T09:00:00Z", _datetime, datetime.isoformat)
DECIMAL = Written("decimal", "a decimal number", _decimal, str)
IDENTIFIER = Written("uuid", "a UUID", _uuid, str)
SECRET = SecretName()
