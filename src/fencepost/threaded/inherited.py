"""Descriptors that a forked child must not keep: whoever waits for their end would wait for the child as well.

A guardian learns from the end of a pipe that its supervisor is gone. A child that was forked meanwhile has that pipe,
too, and would keep it open for as long as it lives: a program whose supervisor was killed would go on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class OfTheParent(Protocol):
    """Something with descriptors that belong to the process that opened them."""

    def leave_to_parent(self) -> None:
        """Close them, in a child that has just been forked, and never use them again. No lock may be waited for."""
        ...


_open_here: WeakSet[OfTheParent] = WeakSet()


def keep_from_children(part: OfTheParent) -> None:
    """Have every child that is forked from now on leave this to us."""
    _open_here.add(part)


def _leave_all() -> None:
    for part in list(_open_here):
        with suppress(OSError):
            part.leave_to_parent()
    _open_here.clear()


os.register_at_fork(after_in_child=_leave_all)
