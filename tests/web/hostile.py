"""Hostile texts in every text column of every table, each with the name of its column in it, so that it can be told
which columns a page shows. The list of columns is read from the tables: a new column is hostile by itself.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Column, Table, insert, select, update

from fencepost import App
from fencepost.ledger.tables import Tables

EVIL = "\"'><img src=x onerror=\"document.title='gone'\"><script>document.title='gone'</script>"
EVIL += "<a href=javascript:alert(1)>{{7*7}}</textarea></title>\u202e"

# Names that lead from one table to another: the same text in all of them.
_NAMES = {
    **dict.fromkeys(
        ("run.job", "schedule.job", "journal.job", "permission.job", "job.parent", "job_hour.job"), "job.name"
    ),
    **dict.fromkeys(("audit.job",), "job.name"),
    **dict.fromkeys(("run.schedule", "journal.schedule"), "schedule.id"),
    **dict.fromkeys(("run.node", "attempt.node", "journal.node", "job_hour.node"), "node.id"),
    **dict.fromkeys(("run.exclusive_key",), "exclusive.key"),
    **dict.fromkeys(("run.queue", "pause.queue"), "run.queue"),
}
_UNIQUE = {"run.origin_key", "api_token.secret_hash"}
# Words of ours, by which rows are found and pages drawn: only our code writes them.
KEPT = {
    "run.state", "run.waits_for", "schedule.origin", "schedule.spec", "attempt.outcome", "permission.role",
    "identity.id", "identity.evidence", "audit.hash", "audit.prev", "audit_head.hash", "audit_head.floor_hash",
    "role.role", "role.reasons",
}  # fmt: skip
# What no page shows: secrets and hashes, answers to repeated requests, and what has no page yet.
NOT_SHOWN = {
    "account.password", "login.secret_hash", "api_token.secret_hash", "node.grant_id", "node.fingerprint",
    "deploy.fingerprint", "run.params_hash", "run.root", "run.type", "node.id", "node.drain_by", "job.parent",
    "answer.principal", "answer.request_key", "answer.path", "answer.body_hash", "answer.body",
    "run_search.name", "run_search.value", "job_hour.outcomes", "job_hour.histogram",
    "acknowledged.what", "acknowledged.id", "acknowledged.by", "acknowledged.note",
    "pause.by", "pause.reason",
}  # fmt: skip


def text_columns(tables: Tables) -> dict[str, Column[Any]]:
    """Return every column with text, by the name of its table without the prefix."""
    return {
        f"{table.name.removeprefix(tables.prefix)}.{column.name}": column
        for table in tables.all
        for column in table.c
        if column.type.python_type is str
    }


def mark(column: str) -> str:
    """Return what a page that shows this column has in it."""
    return f"«{_NAMES.get(column, column)}»"


def evil(column: str) -> str:
    return mark(column) + EVIL


def make_hostile(app: App) -> set[str]:
    """Write hostile texts into all columns but those in `KEPT`; return the marks that pages have to show."""
    tables, prefix = app.ledger.tables, app.ledger.tables.prefix
    for table in tables.all:
        if not app.ledger.read(lambda cursor, table=table: app.ledger.rows(cursor, select(table).limit(1))):
            _change(app, insert(table).values({each.name: _any(table, each) for each in table.c}).inline())
    for table in tables.all:
        _spoil(app, table, table.name.removeprefix(prefix))
    return {mark(each) for each in text_columns(tables) if each not in KEPT | NOT_SHOWN}


def _spoil(app: App, table: Table, short: str) -> None:
    keys = list(table.primary_key)
    for row in app.ledger.read(lambda cursor: app.ledger.rows(cursor, select(table))):
        old = dict(zip(table.c.keys(), row, strict=True))
        new = {
            each.name: _spoiled(f"{short}.{each.name}", old[each.name], is_key=each.primary_key)
            for each in table.c
            if each.type.python_type is str and f"{short}.{each.name}" not in KEPT
        }
        if new:
            _change(app, update(table).where(*(key == old[key.name] for key in keys)).values(new))


def _spoiled(column: str, old: str | None, *, is_key: bool) -> str | None:
    text = evil(column)
    if column in _JSON:
        return json.dumps(_JSON[column](json.loads(old or "null"), text))
    if (column == "permission.job" and not old) or (column in _UNIQUE and old is None):
        return old  # all jobs; and two could not have the same
    return f"{old or ''}{text}" if is_key or column in _NAMES or column in _UNIQUE else text


_JSON = {
    "node.queues": lambda old, text: [*old, text],
    "node.jobs": lambda old, text: [f"{each}{evil('job.name')}" for each in old] + [text],
    "job.policy": lambda old, text: {**old, text: text},
    "job.signature": lambda old, text: {
        "parameters": [{"name": text, "kind": {"literal": [[text, text]]}, "required": True}], "more": True
    },
    "schedule.params": lambda old, text: {text: text},
    "run.params": lambda old, text: {text: text},
    "run.result": lambda old, text: {text: [text]},
    "journal.detail": lambda old, text: {text: text},
    "audit.entry": lambda old, text: {**old, "reason": text, "how": text, "address": text},
}  # fmt: skip


def _any(table: Table, column: Column[Any]) -> Any:
    """Return something for a column of a row that there has to be."""
    if column.nullable:
        return None
    kinds = {str: "null" if f"{table.name.partition('_')[2]}.{column.name}" in _JSON else "", bytes: b"", float: 0.0}
    return kinds.get(column.type.python_type, 2_000_000_000_000_000)


def _change(app: App, statement: Any) -> None:
    app.ledger.write(lambda cursor: app.ledger.change(cursor, statement))
