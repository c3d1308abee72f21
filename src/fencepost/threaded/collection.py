"""Garbage collection in a process of ours that starts: loading modules makes a hundred thousand objects that stay.

By default Python looks through new objects every 700 allocations, and through all of them once more at its end. That is
a fifth of the processor time that it takes to start and end a worker or a command.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS, _ALL = 10_000, 1_000_000_000  # allocations before Python looks for garbage: in a command, while modules load


@contextmanager
def loading() -> Iterator[None]:
    """Collect nothing meanwhile, and leave out of every later collection what has been loaded.

    Reference counts work as always. Only cycles that became garbage while they were loaded stay in memory. What an
    application sets for itself while it is loaded, by the module `gc`, stays set.
    """
    before = gc.get_threshold()
    gc.set_threshold(_ALL, *before[1:])
    try:
        yield
    finally:
        gc.freeze()
        if gc.get_threshold()[0] == _ALL:
            gc.set_threshold(*before)


@contextmanager
def one_command() -> Iterator[None]:
    """Collect less often in a process that executes one command, and not once more when it ends."""
    gc.set_threshold(_OBJECTS)
    try:
        yield
    finally:
        gc.freeze()
