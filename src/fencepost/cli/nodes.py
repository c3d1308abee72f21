"""``fencepost nodes`` and ``fencepost leader``: the nodes of a ledger, which of them leads, and draining one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, NeededReason, front, needed_reason, who
from fencepost.cli.output import answer, counted, draw_fields, draw_rows, exactly, print_json, say, to_the_second
from fencepost.cli.tables import print_history
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from fencepost.app.records import LockRecord, NodeRecord, PastLockRecord


class _NodesOrAct(typer.core.TyperGroup):
    """Lets ``fencepost nodes`` mean ``fencepost nodes list``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_act = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_act else ["list", *args])


app = typer.Typer(
    cls=_NodesOrAct,
    help="Show the living nodes (fencepost nodes, fencepost nodes --all); drain one.\n\nExample: fencepost nodes --all",
    epilog="Exit code 1: there is no such node; 2: bad input, or the ledger cannot be reached.",
)


@app.command("list")
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


@app.command()
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node: its name, or its id (nodes --json).")],
    *,
    by: By = "",
    reason: NeededReason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Ask a node to claim nothing more, to finish its runs, and to leave; fencepost run then ends with exit code 0.

    It waits for its runs as long as they take. To give them a deadline, send SIGTERM to its process. There is no way
    back: start another node.

    Example: fencepost nodes drain web-1 --reason 'the machine is replaced'
    """
    why = needed_reason(reason)
    with front(ledger) as ops:
        found = ops.drain_node(node, by=who(by), reason=why)
    done = "has ended" if found.running == 1 else "have ended"
    runs = f"it leaves when its {counted(found.running, 'run')} {done}" if found.running else "it has no runs"
    sentence = f"node {found.name} was asked to drain by {found.drain_by}: it claims nothing more, and {runs}"
    return answer(document(found), sentence, as_json=as_json)


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
    asked = f", asked by {node.drain_by}" if node.state == "draining" and node.drain_by else ""
    why = f": {node.dead_why}" if node.dead_why else asked
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
