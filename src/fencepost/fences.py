"""Fences outside the ledger: whatever is written to, an older token is refused there.

::

    from fencepost import fences

    fences.write_fenced("report.csv", text, run)                         # a file
    fences.RedisFence(client, "fence:{stock}").execute(run, "SET", …)    # Redis, Valkey
    session.post(url, json=…, headers=fences.fence_headers(run))         # a service, which has the middleware

Each takes a run, a lease, or what one of them shows (`FencingToken`), and raises `LeaseLost` for a stale one. For SQL
databases there is ``run.transaction()``. For a fence of your own, `fencing_of` gives what the writer shows, and
`refusal` is the rule by which it is judged; ``examples/object_store.py`` makes one of conditional writes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fencepost.core.duration import Duration, seconds
from fencepost.core.fencing import Claimant, FencingToken, Mark, fencing_of, refusal
from fencepost.errors import LeaseLost
from fencepost.fence import file
from fencepost.fence.file import file_mark
from fencepost.fence.http import RequestFence, raise_if_stale
from fencepost.fence.http_asgi import AsgiFence
from fencepost.fence.http_header import fence_headers
from fencepost.fence.http_wsgi import WsgiFence
from fencepost.fence.marks import Marks, MemoryMarks, RedisMarks
from fencepost.fence.redis import RedisFence
from fencepost.threaded import ThreadedRuntime

if TYPE_CHECKING:
    from fencepost.fence.sql_marks import SqlMarks

__all__ = [
    "AsgiFence",
    "Claimant",
    "FencingToken",
    "LeaseLost",
    "Mark",
    "Marks",
    "RedisFence",
    "RequestFence",
    "WsgiFence",
    "fence_headers",
    "fencing_of",
    "file_mark",
    "marks_in_memory",
    "marks_in_redis",
    "marks_in_sql",
    "raise_if_stale",
    "refusal",
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


def marks_in_memory() -> MemoryMarks:
    """Return marks for a service that is one process with one worker; they are gone when it ends."""
    return MemoryMarks(_RUNTIME)


def marks_in_redis(client: Any, *, prefix: str = "fencepost:fence:") -> RedisMarks:
    """Return marks that all workers of a service share, in Redis or Valkey; `client` is as for `RedisFence`."""
    return RedisMarks(client, prefix=prefix)


def marks_in_sql(source: Any, *, prefix: str = "fencepost_", schema: str | None = None) -> SqlMarks:
    """Return marks in the database of a service, which its own transactions can check.

    The tables are made by ``fencepost effects install URL``.

    Args:
        source: a SQLAlchemy engine, or a function that returns a fresh connection, which is closed after use.
        prefix: that of the tables.
        schema: where the tables are, on PostgreSQL.
    """
    from fencepost.fence.sql_marks import SqlMarks  # noqa: PLC0415 - the others can do without SQLAlchemy

    return SqlMarks(source, _RUNTIME, prefix=prefix, schema=schema)
