"""``fencepost nodes`` and ``fencepost leader``: the nodes of a ledger, and which of them leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, front
from fencepost.cli.output import draw_fields, draw_rows, exactly, print_json, say, to_the_second
from fencepost.cli.tables import print_history
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from fencepost.app.records import LockRecord, NodeRecord, PastLockRecord


def nodes(
    *,
    every: Annotated[bool, typer.Option("--all", help="Also nodes that have left or died.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many, with --all.")] = 100,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show the living nodes: since when they run, and how many runs they execute.

    A node that claims no more runs and waits for its present ones is draining. A node that was killed is overdue
    when its lease has not been renewed for its ttl, until another node finds it dead.

    Example: fencepost nodes --all
    """
    with front(ledger) as ops:
        found = ops.nodes(living=not every, limit=limit)
    if as_json:
        print_json([document(node) for node in found])
    elif found:
        columns = ("node", "state", "renewed", "running", "slots", "queues", "generation", "started", "longest pause")
        draw_rows(columns, map(_cells, found), spare=("longest pause", "generation", "queues", "slots", "renewed"))
    else:
        print("there is no living node; fencepost run APP starts one")
    return Exit.OK


def leader(
    *,
    past: Annotated[bool, typer.Option("--history", help="Those that led until now, newest first.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many, with --history.")] = 100,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show which node plans for all, where the application uses a leader (leader = true).

    Without one every node plans, and none is special.

    Example: fencepost leader --history
    """
    with front(ledger) as ops:
        if past:
            return _leaders(ops.locks.leaders(limit=limit), as_json=as_json)
        record = ops.leader()
    if record is None or not record.held:
        if as_json:
            print_json(None)
        else:
            say(_without_leader(record))
        return Exit.OK
    if as_json:
        print_json(document(record))
    else:
        draw_fields({"leader": record.holder or "", "token": str(record.token), "since": exactly(record.acquired_at)})
    return Exit.OK


def _leaders(found: list[PastLockRecord], *, as_json: bool) -> int:
    if as_json:
        print_json([document(each) for each in found])
    elif found:
        print_history(found)
    else:
        say("no leader has ended its time yet")
    return Exit.OK


def _without_leader(record: LockRecord | None) -> str:
    if record is None:
        return "there is no leader: every node plans, as it does unless leader = true"
    return (
        f"no node leads now; {record.holder or 'an unknown one'} was last. Where leader = true, the next follows soon"
    )


def _cells(node: NodeRecord) -> tuple[str, ...]:
    pause = "" if node.longest_pause_s is None else f"{node.longest_pause_s:.2f}s"
    ended = to_the_second(node.dead_at or node.left_at or node.draining_at)
    why = f": {node.dead_why}" if node.dead_why else ""
    return (
        node.name,
        f"{node.state} {ended}{why}".strip(),
        _renewed(node),
        str(node.running),
        str(node.slots),
        ",".join(node.queues),
        str(node.generation),
        to_the_second(node.started_at),
        pause,
    )


def _renewed(node: NodeRecord) -> str:
    if node.lease_age_s is None or node.lease_ttl_s is None:
        return ""
    return f"{node.lease_age_s:.1f}s ago of {spelled(round(node.lease_ttl_s, 1))}"
