"""A bound method that does not keep its object alive.

`weakref.WeakMethod` refers to the function weakly, too. At the end of a program the function may go first, and then
Python prints an `AttributeError` that no user can do anything about. Here the function stays.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class BoundWeakly(Generic[T]):
    """Call it for the method; None once the object is gone. `at_end` is called then, and must need nothing else."""

    def __init__(self, method: Callable[[], T], at_end: Callable[[], object] | None = None) -> None:
        bound = cast(MethodType, method)
        self._function: Callable[[Any], T] = bound.__func__
        self._object = weakref.ref(bound.__self__, None if at_end is None else lambda _: at_end())

    def __call__(self) -> Callable[[], T] | None:
        found = self._object()
        return None if found is None else MethodType(self._function, found)
