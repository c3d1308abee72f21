"""A bound method that does not keep its object alive.

`weakref.WeakMethod` also has only a weak reference to the function. At the end of a program the function may be deleted
first, and Python then prints an `AttributeError` that users cannot prevent. This class keeps the function.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class BoundWeakly(Generic[T]):
    """Calling it returns the method, or None once the object is deleted. `at_end` is called at that moment."""

    def __init__(self, method: Callable[[], T], at_end: Callable[[], object] | None = None) -> None:
        bound = cast(MethodType, method)
        self._function: Callable[[Any], T] = bound.__func__
        self._object = weakref.ref(bound.__self__, None if at_end is None else lambda _: at_end())

    def __call__(self) -> Callable[[], T] | None:
        found = self._object()
        return None if found is None else MethodType(self._function, found)
