"""Calls of the ledger, which wait, on threads of their own: few, so that pages cannot use up its connections.

Where the pages are mounted in a process with a node, `run.transaction()` and `enqueue` of its jobs use the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

P = ParamSpec("P")
T = TypeVar("T")

MOST_AT_ONCE = 4  # calls on one event loop, each with one connection at a time: less than POOL_SIZE of the ledger
_limiters: WeakKeyDictionary[object, anyio.CapacityLimiter] = WeakKeyDictionary()


async def in_thread(call: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
    """Call a function that may wait, on one of our threads; the threads of the host application stay free."""
    token = current_token()
    limiter = _limiters.get(token)
    if limiter is None:
        limiter = _limiters[token] = anyio.CapacityLimiter(MOST_AT_ONCE)
    return await anyio.to_thread.run_sync(partial(call, *values, **named), limiter=limiter)
