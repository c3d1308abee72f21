"""Closes descriptors that a forked child must not keep open, because another process waits for their end.

A guardian notices from the end of a pipe that its supervisor has ended. A forked child of the supervisor inherits that
pipe, and would keep it open as long as it lives: a program whose supervisor was killed would continue.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class OfTheParent(Protocol):
    """An object with descriptors that belong to the process that opened them."""

    def leave_to_parent(self) -> None:
        """In a child that has just been forked: close them, and never use them again. Must not wait for a lock."""
        ...


_open_here: WeakSet[OfTheParent] = WeakSet()


def keep_from_children(part: OfTheParent) -> None:
    """Call `leave_to_parent` of this object in every child that is forked from now on."""
    _open_here.add(part)


def _leave_all() -> None:
    for part in list(_open_here):
        with suppress(OSError):
            part.leave_to_parent()
    _open_here.clear()


os.register_at_fork(after_in_child=_leave_all)
