"""``fencepost jobs``: the jobs on record, and how each is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.drawing import at, draw_fields, draw_rows, print_json, to_the_second
from fencepost.cli.exits import Exit
from fencepost.cli.reaching import Json, LedgerUrlOption, know_job, opened
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fencepost.ledger.jobs import JobRow


def jobs(
    name: Annotated[str | None, typer.Argument(metavar="JOB", help="One job only.", show_default=False)] = None,
    *,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show the jobs that nodes have registered, with their types and policies.

    Exit code 1: there is no such job.

    Example: fencepost jobs

    Example: fencepost jobs settle --json
    """
    with opened(ledger) as book:
        if name is not None:
            know_job(book, name)
        found = book.jobs() if name is None else [book.job(name)]
        living = [node.jobs for node in book.living_nodes()]
    nodes = {row.name: sum(row.name in each for each in living) for row in found}
    if as_json:
        documents = [_fields(row, nodes[row.name]) for row in found]
        print_json(documents if name is None else documents[0])
    elif name is not None:
        _draw_one(found[0], nodes[name])
    elif found:
        columns = ("job", "type", "timeout", "retries", "overlap", "misfire", "queue", "nodes", "what it does")
        draw_rows(columns, (_cells(row, nodes[row.name]) for row in found))
    else:
        print("there are no jobs yet; a node brings those of its application when it starts: fencepost run APP")
    return Exit.OK


def _fields(row: JobRow, nodes: int) -> dict[str, object]:
    return {
        "name": row.name,
        "type": row.type,
        "doc": row.doc,
        "policy": json.loads(row.policy),
        "signature": json.loads(row.signature),
        "generation": row.generation,
        "seen_at": at(row.seen_at),
        "nodes": nodes,
    }


def _cells(row: JobRow, nodes: int) -> tuple[str, ...]:
    policy = json.loads(row.policy)
    first_line = (row.doc or "").partition("\n")[0]
    words = (str(policy.get(name, "")) for name in ("retries", "overlap", "misfire", "queue"))
    return (row.name, row.type, spelled(policy.get("timeout", 0)), *words, str(nodes), first_line)


def _draw_one(row: JobRow, nodes: int) -> None:
    policy: Mapping[str, object] = json.loads(row.policy)
    shown = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in policy.items()}
    known = {"job": row.name, "does": row.doc or "", "on living nodes": str(nodes), "seen": to_the_second(row.seen_at)}
    draw_fields(known | shown | {"parameters": row.signature})
