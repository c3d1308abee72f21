"""Planting a bug: the code of a function, or a text, is replaced by a copy with one thing wrong, for a while.

A function keeps its identity, only its code changes; so whoever imported it before is affected, too. What is to be
replaced has to be there exactly once, and what comes of it has to differ: a bug that is not there any more, because
the code around it was rewritten, must not count as planted.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

_FLAGS = importlib.import_module("__future__").annotations.compiler_flag


_SOURCES: dict[FunctionType, str] = {}  # as they are now, for several bugs may be planted in one function


class PlantingError(Exception):
    """The bug cannot be planted: the code is not what it was when the bug was thought of."""


@dataclass(frozen=True, slots=True)
class Code:
    """In the function `where` (``package.module:Class.function``), write `new` instead of `old`."""

    where: str
    old: str
    new: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let it be wrong inside of the context."""
        function = _function(self.where)
        right, source = function.__code__, _source(function)
        changed = replaced_once(source, self.old, self.new, where=self.where)
        function.__code__ = self._wrong(function, source, changed)
        _SOURCES[function] = changed
        _forget()
        try:
            yield
        finally:
            function.__code__ = right
            _SOURCES[function] = source
            _forget()

    def _wrong(self, function: FunctionType, source: str, changed: str) -> CodeType:
        right, wrong = (_compiled(text, function) for text in (source, changed))
        if _meaning(right) == _meaning(wrong):
            raise PlantingError(f"{self.where} means the same as before")
        return wrong


@dataclass(frozen=True, slots=True)
class Text:
    """In the text `where` (``package.module:NAME``, or ``package.module:NAME.key`` of a dictionary), the same."""

    where: str
    old: str
    new: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let it be wrong inside of the context."""
        module_name, _, path = self.where.partition(":")
        module = importlib.import_module(module_name)
        name, _, key = path.partition(".")
        right = getattr(module, name)
        setattr(module, name, self._wrong(right, key))
        _forget()
        try:
            yield
        finally:
            setattr(module, name, right)
            _forget()

    def _wrong(self, right: Any, key: str) -> Any:
        if key:
            return right | {key: self._wrong(right[key], "")}
        if not isinstance(right, str):
            raise PlantingError(f"{self.where} is no text")
        return replaced_once(right, self.old, self.new, where=self.where)


Edit = Code | Text


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug by its name, what is wrong with it, and what is to notice it.

    `tests` are node ids of pytest, of which one has to fail; without any, the simulator has to find it: in any cluster,
    `among` those that have bulk work or a clock that is set, or among lives.
    """

    name: str
    wrong: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    among: str = ""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let it be there inside of the context."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(edit.planted())
            yield


def mutant(name: str, wrong: str, *edits: Edit, tests: tuple[str, ...] | str = (), among: str = "") -> Mutant:
    """Make one."""
    return Mutant(name, wrong, edits, (tests,) if isinstance(tests, str) else tests, among)


def replaced_once(text: str, old: str, new: str, *, where: str) -> str:
    """Return `text` with `old`, which is in it exactly once, replaced."""
    count = text.count(old)
    if count != 1 or old == new:
        raise PlantingError(f"{where} has {old!r} {count} times, and once is needed; think the bug anew")
    return text.replace(old, new)


def _function(where: str) -> FunctionType:
    module_name, _, path = where.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = inspect.getattr_static(found, name) if inspect.isclass(found) else getattr(found, name)
    return _plain(found, where)


def _plain(found: Any, where: str) -> FunctionType:
    """Return the function behind a property, a static method, a context manager or a cache."""
    for attribute in ("fget", "__func__", "__wrapped__"):
        found = getattr(found, attribute, None) or found
    if not isinstance(found, FunctionType):
        raise PlantingError(f"{where} is no function")
    return found


def _source(function: FunctionType) -> str:
    """Return the function as it stands in its file, or as it was planted, flush left."""
    return _SOURCES.get(function) or textwrap.dedent(inspect.getsource(function))


def _compiled(source: str, function: FunctionType) -> CodeType:
    """Compile a function's source and return its code; inside a class, if it asks for its own."""
    is_in_class = "__class__" in function.__code__.co_freevars
    text = f"class _:\n{textwrap.indent(source, '    ')}" if is_in_class else source
    tree = ast.parse(text)
    outer: CodeType = compile(tree, function.__code__.co_filename, "exec", flags=_FLAGS, dont_inherit=True)
    code = _named(outer, function.__name__)
    if code.co_freevars != function.__code__.co_freevars:
        raise PlantingError(f"{function.__qualname__} uses names from around it, which a planted bug cannot")
    return code


def _named(outer: CodeType, name: str) -> CodeType:
    inner = [each for each in outer.co_consts if isinstance(each, CodeType)]
    for code in inner:
        if code.co_name == name:
            return code
    return _named(inner[0], name)


def _meaning(code: CodeType) -> tuple[Any, ...]:
    consts = tuple(_meaning(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.co_code, consts, code.co_names, code.co_varnames


def _forget() -> None:
    """Empty the caches that keep what was worked out by the code as it was."""
    for where in ("fencepost.core.ticking:_kind",):
        module_name, _, name = where.partition(":")
        cache: Callable[..., Any] = getattr(importlib.import_module(module_name), name)
        if isinstance(cache, functools._lru_cache_wrapper):
            cache.cache_clear()
