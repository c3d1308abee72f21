"""The pages as people ask for them, in this process: through the whole ASGI application, with logins of their own.

`Watch` sees every statement that the pages send to the ledger: how many there are, and how many rows each one reads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from fencepost import App
from fencepost.access import Access
from fencepost.core.rights import Scope
from fencepost.ledger import logins
from fencepost.web import web

FRAGMENT = ("fencepost-fragment", "1")
_NOT_READ = ("BEGIN", "COMMIT", "ROLLBACK", "SET", "PRAGMA", "INSERT", "UPDATE", "DELETE", "WITH LOCKED")


# -- statements ------------------------------------------------------------------------------------------------------


class Watch:
    """What the pages send to the ledger. While `reads` is a list, each statement is put there with the rows it read."""

    def __init__(self) -> None:
        self.statements = 0
        self.reads: list[tuple[int, str]] | None = None

    def watch(self, app: App) -> None:
        """See all connections that the application opens from now on."""
        dialect = app.ledger.dialect
        dial, counted = dialect.dial, _COUNTED[dialect.name]
        dialect.dial = lambda *given: _Connection(dial(*given), self, counted)  # type: ignore[method-assign]
        app.ledger.close()  # those that are open already


class _Proxy:
    """Passes on everything that it does not have itself."""

    _own: tuple[str, ...] = ()

    def __init__(self, real: Any, watch: Watch, counted: Any) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_watch", watch)
        object.__setattr__(self, "_counted", counted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


class _Connection(_Proxy):
    def cursor(self, *given: Any, **named: Any) -> Any:
        return _Cursor(self._real.cursor(*given, **named), self._watch, self._counted)


class _Cursor(_Proxy):
    def execute(self, sql: Any, *given: Any, **named: Any) -> Any:
        self._watch.statements += 1
        if self._watch.reads is None or str(sql).lstrip().upper().startswith(_NOT_READ):
            self._real.execute(sql, *given, **named)
        else:
            self._watch.reads.append((self._counted(self._real, sql, given, named), " ".join(str(sql).split())))
        return self

    def executemany(self, sql: Any, *given: Any, **named: Any) -> Any:
        self._watch.statements += 1
        self._real.executemany(sql, *given, **named)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self._real)


def _read_on_postgres(cursor: Any, sql: Any, given: Any, named: Any) -> int:
    """Execute it under EXPLAIN ANALYZE, and then as it is."""
    with cursor.connection.cursor() as beside:
        beside.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", *given)
        [(plans,)] = beside.fetchall()
    cursor.execute(sql, *given, **named)
    read = json.loads(plans) if isinstance(plans, str) else plans
    return _rows_of(read[0]["Plan"])


def _rows_of(plan: dict[str, Any]) -> int:
    """Return the rows that the scans below a node have read, those that a filter removed included."""
    here = 0
    if "Relation Name" in plan or "Index Name" in plan:
        once = plan.get("Actual Rows", 0) + sum(
            value for name, value in plan.items() if name.startswith("Rows Removed")
        )
        here = round(once * plan.get("Actual Loops", 1))
    if plan["Node Type"] == "Bitmap Heap Scan":  # the scans of indexes below it find these rows, and perhaps more
        return max(here, *(_rows_of(each) for each in plan["Plans"]))
    return here + sum(_rows_of(each) for each in plan.get("Plans", ()))


def _read_on_mariadb(cursor: Any, sql: Any, given: Any, named: Any) -> int:
    """Execute it, and compare what the server counts of this session: asking for that reads some rows, too."""
    before, asking = _handler_reads(cursor), 0
    asking = _handler_reads(cursor) - before
    before = _handler_reads(cursor)
    cursor.execute(sql, *given, **named)
    rows, description = cursor._rows, cursor.description
    kept = (cursor.rowcount, cursor._result)
    read = _handler_reads(cursor) - before - asking
    cursor._rows, cursor.description, cursor.rownumber = rows, description, 0
    cursor.rowcount, cursor._result = kept
    return max(int(read), 0)


def _handler_reads(cursor: Any) -> int:
    import pymysql

    with pymysql.cursors.Cursor(cursor.connection) as beside:
        beside.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in beside.fetchall())


def _read_on_sqlite(cursor: Any, sql: Any, given: Any, named: Any) -> int:
    """Execute it, and count steps of SQLite's machine: to pass a row takes at least two of them."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 100
        return 0

    cursor.connection.set_progress_handler(step, 100)
    try:
        rows = cursor.execute(sql, *given, **named).fetchall()
    finally:
        cursor.connection.set_progress_handler(None, 0)
    cursor.execute(sql, *given, **named)
    return max(steps // 2, len(rows))


_COUNTED = {"postgresql": _read_on_postgres, "mysql": _read_on_mariadb, "sqlite": _read_on_sqlite}


# -- people ----------------------------------------------------------------------------------------------------------


class Person:
    """Someone with permissions and some logins."""

    def __init__(self, app: App, name: str, role: str, jobs: Sequence[str] = ()) -> None:
        self.name = name
        access = Access(app.ledger, Scope.direct("bench"))
        access.put_account(name, None)
        access.give(f"user:{name}", role, **({"jobs": jobs} if jobs else {}))
        self._ledger = app.ledger
        self._made = 0

    def login(self) -> str:
        """Log in once more; return the cookie."""
        self._made += 1
        secret = f"{self.name}-{self._made}-{'x' * 60}"
        self._ledger.write(
            lambda cursor: logins.add_login(
                self._ledger, cursor, secret, f"user:{self.name}", how="login", address=None, lasts_s=43_200
            )
        )
        return f"fencepost-login={secret}"


class Pages:
    """The pages of a ledger, asked from one event loop."""

    def __init__(self, url: str, watch: Watch) -> None:
        self.app = App(url)
        watch.watch(self.app)
        self.watch = watch
        self.asgi = web(self.app)

    def scope(self, target: str, cookie: str, *headers: tuple[str, str]) -> dict[str, Any]:
        path, _, query = target.partition("?")
        said = [("host", "127.0.0.1"), ("cookie", cookie), *headers]
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in said],
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 8600),
        }

    async def get(self, target: str, cookie: str, *headers: tuple[str, str]) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        status, body, ended = 0, b"", asyncio.Event()
        is_asked = False

        async def receive() -> dict[str, Any]:
            nonlocal is_asked
            if not is_asked:
                is_asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body += message.get("body", b"")

        await self.asgi(self.scope(target, cookie, *headers), receive, send)
        ended.set()
        return status, body


@contextmanager
def pages(url: str) -> Iterator[Pages]:
    """Yield the pages of a ledger."""
    made = Pages(url, Watch())
    try:
        yield made
    finally:
        made.app.close()
