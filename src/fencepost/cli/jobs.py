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
    from fencepost.ledger.jobs import JobRow

_DURATIONS = ("timeout", "sla", "grace")


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
        draw_rows(columns, (_cells(row, nodes[row.name]) for row in found), spare=("misfire", "overlap", "retries"))
    else:
        print("there are no jobs yet; a node brings those of its application when it starts: fencepost run APP")
    return Exit.OK


def _fields(row: JobRow, nodes: int) -> dict[str, object]:
    return {
        "name": row.name,
        "type": row.type,
        "doc": row.doc,
        "policy": json.loads(row.policy),
        "strategy": _strategy(row.policy),
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
    known = {"job": row.name, "does": row.doc or "", "on living nodes": str(nodes), "seen": to_the_second(row.seen_at)}
    policy = {name: _shown(name, value) for name, value in json.loads(row.policy).items() if value is not None}
    draw_fields(known | {"parameters": _parameters(row.signature), "strategy": _strategy(row.policy) or ""} | policy)


def _shown(name: str, value: object) -> str:
    if name in _DURATIONS and isinstance(value, int | float):
        return spelled(value)
    if name == "backoff" and isinstance(value, dict) and {"base", "cap", "factor"} <= set(value):
        return f"{spelled(value['base'])}, each time {value['factor']:g} times as long, up to {spelled(value['cap'])}"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _strategy(policy: str) -> str | None:
    """Say what keeps its effects from landing twice."""
    from fencepost.core.policy import Policy  # noqa: PLC0415 - only this reads them
    from fencepost.core.strategy import strategy  # noqa: PLC0415
    from fencepost.errors import InvalidPolicy  # noqa: PLC0415

    try:
        return strategy(Policy.from_json(policy))
    except InvalidPolicy:  # a newer release may spell it otherwise
        return None


def _parameters(signature: str) -> str:
    """Say what the job takes, a parameter a line."""
    from fencepost.core.parameters import Signature  # noqa: PLC0415 - only this shows them
    from fencepost.errors import InvalidParameters  # noqa: PLC0415

    try:
        takes = Signature.from_json(signature)
    except InvalidParameters:  # a newer release may describe them otherwise
        return signature
    lines = [
        f"{each.name}: {each.kind.spelled}{'' if each.is_required else ' (optional)'}" for each in takes.parameters
    ]
    return "\n".join([*lines, *(["any others"] if takes.takes_more else [])]) or "none"
