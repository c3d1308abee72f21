"""Fences for files, Redis and HTTP services: they refuse a write that carries an older token.

::

    from fencepost import fences

    fences.write_fenced("report.csv", text, run)                         # a file
    fences.RedisFence(client, "fence:{stock}").execute(run, "SET", …)    # Redis, Valkey
    session.post(url, json=…, headers=fences.fence_headers(run))         # a service, which has the middleware

Each takes a run, a lease, or the `FencingToken` of one, and raises `LeaseLost` if it is stale. For SQL databases, use
``run.transaction()``. To write a fence of your own, use `fencing_of` to get a writer's token and `refusal` to decide
whether it is stale; ``examples/object_store.py`` builds a fence from conditional writes.
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
    """Replace the file at `path` with `content` atomically, or raise `LeaseLost` and leave it unchanged.

    Args:
        path: the file. If it is a symbolic link, the target of the link is replaced, not the link.
        content: the complete new content; text is written as UTF-8.
        token: the run or lease on whose behalf the file is written.
        timeout: how long to wait for another writer that is replacing the file.
        accept_risk: ``"network-filesystem"`` to write to a file system where file locks may not work.
    """
    timeout_s = seconds(timeout, what="timeout")
    file.write_fenced(path, content, token, runtime=_RUNTIME, timeout_s=timeout_s, accept_risk=accept_risk)


def marks_in_memory() -> MemoryMarks:
    """Return marks for a service that runs as one process with one worker; they are lost when it ends."""
    return MemoryMarks(_RUNTIME)


def marks_in_redis(client: Any, *, prefix: str = "fencepost:fence:") -> RedisMarks:
    """Return marks that all workers of a service share, in Redis or Valkey. `client` is that of `RedisFence`."""
    return RedisMarks(client, prefix=prefix)


def marks_in_sql(source: Any, *, prefix: str = "fencepost_", schema: str | None = None) -> SqlMarks:
    """Return marks in the database of a service, so that the service's own transactions can check them.

    ``fencepost effects install URL`` creates the tables.

    Args:
        source: a SQLAlchemy engine, or a function that returns a new connection, which is closed after use.
        prefix: the prefix of the table names.
        schema: the schema of the tables, on PostgreSQL.
    """
    from fencepost.fence.sql_marks import SqlMarks  # noqa: PLC0415 - the other fences do not need SQLAlchemy

    return SqlMarks(source, _RUNTIME, prefix=prefix, schema=schema)
