"""A job's parameters, checked against its function's signature before anything is recorded.

A `Signature` is read from the function once. It is also stored in the ledger, so that commands can check parameters
without importing the application.

**Promises.** `validate` returns JSON values, and the arguments that `bind` makes from them fit the function's
signature. Omitted parameters are not recorded: the function's own defaults apply when it is called.

**Not promised.** That the function is unchanged when the run starts: there may be a deploy in between. The call then
fails, and the run records why.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

from fencepost.core.annotations import SUPPORTED, Unsupported, holds_secret, kind_from_json, kind_of
from fencepost.core.identity import canonical_json
from fencepost.core.kinds import ANYTHING, ParameterKind
from fencepost.core.nearest import suggestion
from fencepost.core.secret import Secret
from fencepost.errors import InvalidJob, InvalidParameters

V = TypeVar("V")

LONGEST_PARAMETERS = 60_000  # bytes: every claim reads them, so large data belongs elsewhere
_AS_IT_IS = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
RUN = "run"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that a job takes."""

    name: str
    kind: ParameterKind
    is_required: bool
    default: Secret[str] | None = None  # of a secret: it is looked up, too

    @property
    def is_secret(self) -> bool:
        """Whether it is a `Secret`, of which only the name is on record."""
        return holds_secret(self.kind)


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a job's function: its parameters, whether it takes the run, and whether it is asynchronous."""

    parameters: tuple[Parameter, ...] = ()
    run_name: str | None = None  # the name of the parameter that takes the run
    is_async: bool = False
    takes_more: bool = False  # **kwargs: parameters of any other name
    secrets: tuple[Parameter, ...] = field(init=False, repr=False, compare=False)  # those that are secrets
    _by_name: dict[str, Parameter] = field(init=False, repr=False, compare=False)
    _loads: tuple[tuple[str, Callable[[Any], Any]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", tuple(each for each in self.parameters if each.is_secret))
        object.__setattr__(self, "_by_name", {each.name: each for each in self.parameters})
        loads = tuple((each.name, each.kind.load) for each in self.parameters if each.kind.converts)
        object.__setattr__(self, "_loads", loads)

    @staticmethod
    def of(function: Callable[..., Any]) -> Signature:
        """Read the signature of a function, or raise `InvalidJob` if the function cannot be a job."""
        found = _inspected(function)
        hints = {name: _hint(function, parameter) for name, parameter in found.items()}
        run_name = _run_name(found, hints)
        named = [each for each in found.values() if each.name != run_name and each.kind in _BY_NAME]
        return Signature(
            parameters=tuple(
                Parameter(
                    each.name,
                    _kind(function, each.name, hints[each.name]),
                    each.default is each.empty,
                    each.default if isinstance(each.default, Secret) else None,
                )
                for each in named
            ),
            run_name=run_name,
            is_async=_is_async(function),
            takes_more=any(each.kind is each.VAR_KEYWORD for each in found.values()),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(self._by_name)

    def validate(self, params: Mapping[str, Any], *, job: str | None = None) -> dict[str, Any]:
        """Return `params` as JSON values, or raise `InvalidParameters` with all errors."""
        stored, wrong = _converted(params, lambda name, value: self._kind(name).store(value, f"parameter {name!r}"))
        missing = [each.name for each in self.parameters if each.is_required and each.name not in params]
        if missing:
            wrong.append(f"{_counted('parameter', missing)} {', '.join(map(repr, missing))} must be given")
        if wrong:
            raise InvalidParameters(_of_job(job) + "; ".join(wrong))
        if stored:
            _refuse_too_long(stored, job)
        return stored

    def coerce_text(self, params: Mapping[str, str], *, job: str | None = None) -> dict[str, Any]:
        """Convert texts from a command line (``-p days=3``) to JSON values, according to the kind of each parameter.

        A parameter without an annotation is parsed as JSON if it is valid JSON, else kept as text.
        """
        read, wrong = _converted(params, lambda name, text: self._kind(name).read(text, f"parameter {name!r}"))
        if wrong:
            raise InvalidParameters(_of_job(job) + "; ".join(wrong))
        return read

    def bind(self, params: dict[str, Any], run: object = None) -> dict[str, Any]:
        """Return the keyword arguments for a call: `params` itself, if nothing is to be converted or added."""
        if not self._loads or not params:
            return params if self.run_name is None else {**params, self.run_name: run}
        bound = params.copy()
        for name, load in self._loads:
            if name in bound:
                bound[name] = _loaded(load, bound[name], name)
        if self.run_name is not None:
            bound[self.run_name] = run
        return bound

    def to_json(self) -> str:
        """Return the signature as JSON, for the ledger."""
        parameters = [
            {"name": each.name, "kind": each.kind.to_json(), "required": each.is_required} for each in self.parameters
        ]
        return canonical_json(
            {"parameters": parameters, "run": self.run_name, "async": self.is_async, "more": self.takes_more}
        )

    @staticmethod
    def from_json(text: str) -> Signature:
        """Read the output of `to_json`. The result validates like the original, but cannot `bind`."""
        try:
            stored = json.loads(text)
            parameters = tuple(
                Parameter(str(each["name"]), kind_from_json(each.get("kind")), bool(each.get("required")))
                for each in stored.get("parameters", [])
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidParameters(f"a stored signature cannot be read: {error!r}") from error
        return Signature(parameters, stored.get("run"), bool(stored.get("async")), bool(stored.get("more")))

    def _kind(self, name: object) -> ParameterKind:
        if not isinstance(name, str):
            raise InvalidParameters(f"parameter {name!r}: the name must be a text")
        parameter = self._by_name.get(name)
        if parameter is not None:
            return parameter.kind
        if self.takes_more and name != self.run_name:
            return ANYTHING
        raise InvalidParameters(f"there is no parameter {name!r}; {suggestion(name, self._by_name)}")


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _inspected(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    name = getattr(function, "__qualname__", repr(function))
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise InvalidJob(f"{name} cannot be a job: it is not a function, or its parameters are unknown") from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidJob(f"{name} cannot be a job: it is a generator, so a call would not run its code")
    for parameter in found.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidJob(
                f"{name} cannot be a job: parameters are passed by name, and {parameter.name!r} is positional-only (/)"
            )
    return found


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _hint(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Resolve one annotation: each by itself, so that a name only type checkers can resolve does not affect others."""
    if parameter.annotation is parameter.empty:
        return parameter.empty
    alone = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return typing.get_type_hints(alone, globalns=_globals(function))["it"]
    except Exception:  # noqa: BLE001 - an annotation may be anything; one that cannot be resolved is not checked
        return parameter.annotation


def _kind(function: Callable[..., Any], name: str, hint: Any) -> ParameterKind:
    try:
        return kind_of(hint)
    except Unsupported as error:
        job = getattr(function, "__qualname__", repr(function))
        raise InvalidJob(
            f"{job} cannot be a job: parameter {name!r} is annotated as {error}, which cannot be stored as JSON and "
            f"loaded again; supported are {SUPPORTED}. Pass its parts, or a key by which the job finds it"
        ) from None


def _globals(function: Any) -> dict[str, Any]:
    """Return the global names for annotations of a function, a partial, a callable object or a class."""
    inner = inspect.unwrap(getattr(function, "func", function))
    if isinstance(inner, type):
        inner = inner.__init__  # type: ignore[misc]
    names: dict[str, Any] = getattr(inner, "__globals__", None) or getattr(inner.__call__, "__globals__", {})
    return names


def _run_name(found: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> str | None:
    """Return the first parameter's name if it takes the run: annotated as `Run`, or named so and not annotated."""
    first = next(iter(found.values()), None)
    if first is None or first.kind not in _BY_NAME:
        return None
    hint = hints[first.name]
    spelled = hint if isinstance(hint, str) else getattr(hint, "__name__", "")
    if spelled.rpartition(".")[2].strip("\"' ") == "Run":
        return first.name
    return first.name if first.name == RUN and not _is_value(hint) else None


def _is_value(hint: Any) -> bool:
    """Whether an annotation stands for a value that can be recorded."""
    try:
        return kind_of(hint) is not ANYTHING
    except Unsupported:
        return False


def _loaded(load: Callable[[Any], Any], stored: Any, name: str) -> Any:
    try:
        return load(stored)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise InvalidParameters(
            f"parameter {name!r} was recorded in a form that the function no longer accepts: {error}"
        ) from error


def _refuse_too_long(stored: dict[str, Any], job: str | None) -> None:
    """Refuse parameters over the limit, in bytes of UTF-8; canonical JSON, which escapes other letters, is longer."""
    if len(canonical_json(stored)) <= LONGEST_PARAMETERS:  # the escaped form is never shorter than UTF-8
        return
    length = len(_AS_IT_IS(stored).encode("utf-8", "surrogatepass"))
    if length > LONGEST_PARAMETERS:
        raise InvalidParameters(
            f"{_of_job(job)}the parameters take {length} bytes of JSON; the limit is {LONGEST_PARAMETERS}: "
            "store large data elsewhere, and pass its location"
        )


def _converted(params: Mapping[str, V], convert: Callable[[str, V], Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert each value; return the results, and a sentence for each value that is refused."""
    results: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in params.items():
        try:
            results[name] = convert(name, value)
        except InvalidParameters as error:
            wrong.append(str(error))
    return results, wrong


def _of_job(job: str | None) -> str:
    return f"job {job!r}: " if job else ""


def _counted(word: str, things: list[str]) -> str:
    return word if len(things) == 1 else f"{word}s"
