"""Fences outside the ledger: whatever is written to, an older token is refused there.

::

    from fencepost import fences

    fences.write_fenced("report.csv", text, run)                         # a file
    fences.RedisFence(client, "fence:{stock}").execute(run, "SET", …)    # Redis, Valkey
    session.post(url, json=…, headers=fences.fence_headers(run))         # a service, which has the middleware

Each takes a run, a lease, or what one of them shows (`FencingToken`), and raises `LeaseLost` for a stale one. For SQL
databases there is ``run.transaction()``.
"""

from __future__ import annotations

import os

from fencepost.core.duration import Duration, seconds
from fencepost.core.fencing import Claimant, FencingToken, Mark
from fencepost.errors import LeaseLost
from fencepost.fence import file
from fencepost.fence.file import file_mark
from fencepost.fence.redis import RedisFence
from fencepost.threaded import ThreadedRuntime

__all__ = [
    "Claimant",
    "FencingToken",
    "LeaseLost",
    "Mark",
    "RedisFence",
    "file_mark",
    "write_fenced",
]

_RUNTIME = ThreadedRuntime()


def write_fenced(
    path: str | os.PathLike[str],
    content: bytes | str,
    token: Claimant,
    *,
    timeout: Duration = file.TIMEOUT_S,
    accept_risk: str | None = None,
) -> None:
    """Replace the file at `path` by `content` as a whole, or raise `LeaseLost` and leave it untouched.

    Args:
        path: the file; what a link leads to is replaced, not the link.
        content: all of it; text is written as UTF-8.
        token: the run or the lease in whose name it is written.
        timeout: how long to wait for another writer who is just replacing it.
        accept_risk: ``"network-filesystem"`` to write where locks on files may not hold.
    """
    timeout_s = seconds(timeout, what="timeout")
    file.write_fenced(path, content, token, runtime=_RUNTIME, timeout_s=timeout_s, accept_risk=accept_risk)
