"""``fencepost nodes`` and ``fencepost leader``: who takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, opened
from fencepost.cli.output import at, draw_fields, draw_rows, print_json, say, to_the_second

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fencepost.core.grants import LeaseRecord
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.nodes import NodeRow

_MOST_RUNNING = 10_000


def nodes(
    *,
    every: Annotated[bool, typer.Option("--all", help="Also those that left or died.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many, with --all.")] = 100,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show the nodes that take part: since when, with how much to do.

    A node that takes no more runs and waits for those it has is draining. One that was killed is shown
    as living until another has found it dead, about a ttl later.

    Example: fencepost nodes --all
    """
    from fencepost.ledger import nodes  # noqa: PLC0415 - SQLAlchemy takes its time to load

    with opened(ledger) as book:
        found = nodes.nodes(book, limit=limit) if every else nodes.living_nodes(book)
        running = running_by_node(book)
    if as_json:
        print_json([_fields(node, running.get(node.id, 0)) for node in found])
    elif found:
        _draw(found, running)
    else:
        print("no node takes part; fencepost run APP starts one")
    return Exit.OK


def leader(*, ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show which node plans for all, where the application wants a leader (leader = true).

    Without one every node plans, and none is special.

    Example: fencepost leader
    """
    from fencepost.engine.node import LEADER  # noqa: PLC0415 - it loads the engine
    from fencepost.locks import connect  # noqa: PLC0415

    with opened(ledger) as book, connect(book.url.lease_url()) as locks:
        record = locks.read(LEADER)
    if record is None or not record.is_held:
        if as_json:
            print_json(None)
        else:
            say(_without_leader(record))
        return Exit.OK
    if as_json:
        print_json(_leader_fields(record))
    else:
        draw_fields(
            {"leader": record.holder or "", "token": str(record.token), "since": at(record.acquired_at_us) or ""}
        )
    return Exit.OK


def _without_leader(record: LeaseRecord | None) -> str:
    if record is None:
        return "there is no leader: every node plans, as it does unless leader = true"
    return f"nobody leads now; {record.holder or 'somebody'} did last. Where leader = true, the next takes over soon"


def _leader_fields(record: LeaseRecord) -> dict[str, object]:
    return {
        "holder": record.holder,
        "token": record.token,
        "since": at(record.acquired_at_us),
        "free_in_s": record.free_in_s,
    }


def running_by_node(book: Ledger) -> dict[str, int]:
    """Return how many runs each node has in hand, by its id."""
    from fencepost.ledger.history import RunFilter, runs  # noqa: PLC0415

    counted: dict[str, int] = {}
    for row in runs(book, RunFilter(states=("running",)), limit=_MOST_RUNNING):
        counted[row.node or ""] = counted.get(row.node or "", 0) + 1
    return counted


def _draw(found: Sequence[NodeRow], running: Mapping[str, int]) -> None:
    columns = ("node", "state", "running", "slots", "queues", "generation", "started", "longest pause")
    draw_rows(
        columns,
        (_cells(node, running.get(node.id, 0)) for node in found),
        spare=("longest pause", "generation", "queues", "slots"),
    )


def _cells(node: NodeRow, running: int) -> tuple[str, ...]:
    pause = "" if node.longest_pause_us is None else f"{node.longest_pause_us / 1_000_000:.2f}s"
    ended = to_the_second(node.dead_at or node.left_at or node.draining_at)
    why = f": {node.dead_why}" if node.dead_why else ""
    return (
        node.name,
        f"{_state(node)} {ended}{why}".strip(),
        str(running),
        str(node.slots),
        ",".join(node.queues),
        str(node.generation),
        to_the_second(node.started_at),
        pause,
    )


def _state(node: NodeRow) -> str:
    if node.is_living:
        return "living" if node.draining_at is None else "draining"
    return "dead" if node.dead_at is not None else "left"


def _fields(node: NodeRow, running: int) -> dict[str, object]:
    return {
        "id": node.id,
        "name": node.name,
        "state": _state(node),
        "running": running,
        "slots": node.slots,
        "queues": list(node.queues),
        "jobs": list(node.jobs),
        "generation": node.generation,
        "version": node.version,
        "token": node.token,
        "started_at": at(node.started_at),
        "draining_at": at(node.draining_at),
        "left_at": at(node.left_at),
        "dead_at": at(node.dead_at),
        "dead_why": node.dead_why,
        "longest_pause_s": None if node.longest_pause_us is None else node.longest_pause_us / 1_000_000,
    }
