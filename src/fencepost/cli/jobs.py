"""``fencepost jobs``: the recorded jobs and their policies, renaming one, and forgetting one that is gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import (
    By,
    JobName,
    Json,
    LedgerUrlOption,
    NeededReason,
    Reason,
    front,
    needed_reason,
    who,
)
from fencepost.cli.output import answer, counted, draw_fields, draw_rows, print_json, to_the_second
from fencepost.core.duration import spelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fencepost.app.records import JobRecord

_DURATIONS = ("timeout", "sla", "grace")


class _JobsOrOne(typer.core.TyperGroup):
    """Lets ``fencepost jobs``, ``fencepost jobs list`` and ``fencepost jobs settle`` mean ``fencepost jobs show``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] == ["list"]:  # as with schedules; a job of that name is shown by jobs show list
            args = ["show", *args[1:]]
        is_act = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_act else ["show", *args])


app = typer.Typer(
    cls=_JobsOrOne,
    help="Show the jobs that nodes have registered (fencepost jobs, fencepost jobs JOB); rename or forget one.\n\n"
    "Example: fencepost jobs settle",
    epilog="Exit code 1: there is no such job; 2: bad input, or the ledger cannot be reached.",
)


@app.command()
def forget(
    name: JobName, *, by: By = "", reason: NeededReason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Forget a job that no living node has: delete its schedules and cancel its runs that have not ended.

    Runs that have ended stay on record until their retention is over. If the job comes back, it starts over.

    Example: fencepost jobs forget nightly --reason 'replaced by settle'
    """
    why = needed_reason(reason)
    with front(ledger) as ops:
        gone = ops.forget_job(name, by=who(by), reason=why)
    schedules, runs = counted(gone.schedules, "schedule"), counted(gone.runs, "run")
    return answer(
        {"name": name, "schedules": gone.schedules, "runs": gone.runs},
        f"job {name} is forgotten: {schedules} deleted, {runs} cancelled",
        as_json=as_json,
    )


_OWN = "own"


@app.command()
def rename(
    old: JobName,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new name.")],
    effects: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A database besides the ledger's that its runs write to; give each. For a bulk job that writes only "
            "to the ledger's own: --effects own.",
            show_default=False,
        ),
    ] = None,
    *,
    into_existing: Annotated[
        bool, typer.Option("--into-existing", help="Let OLD join the job NEW, which has runs or schedules of its own.")
    ] = False,
    by: By = "",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Rename a job in all records. No living node may have the job under either name.

    Where NEW is another job, this is refused. With --into-existing the two become one: where both have a schedule in
    the code, that of OLD is deleted, and permissions on OLD are taken away.

    A simpler way, which stops no node: deploy the new name with formerly="OLD" in the code.
    After this command, use the new name in the code, without formerly. If it is interrupted, repeat it: until it is
    done, the job cannot be renamed to anything else, nor forgotten.

    Checkpoints and dead letters are renamed in every database of --effects, each in one transaction, and stale
    writers of the old name are refused there. A request key that was used before is refused afterwards.

    Example: fencepost jobs rename nightly settle --effects postgresql://db/shop
    """
    with front(ledger) as ops:
        elsewhere = None if not effects else [url for url in effects if url != _OWN]
        done = ops.rename_job(
            old, new, effects=elsewhere, by=who(by), reason=reason or None, into_existing=into_existing
        )
    moved = (
        counted(done.schedules, "schedule"),
        counted(done.runs, "run"),
        counted(done.checkpoints, "checkpoint"),
        counted(done.letters, "dead letter"),
    )
    sentence = f"job {old} is {new} now: {', '.join(moved)}; its code needs no formerly"
    if done.schedules_deleted:
        sentence += f"\ndeleted, since {new} has its own: {', '.join(done.schedules_deleted)} (fencepost journal)"
    if done.permissions_taken:
        taken = counted(done.permissions_taken, "permission")
        sentence += f"\n{taken} on {old} taken away: who needs {new} is given it by fencepost permissions give"
    return answer(document(done), sentence, as_json=as_json)


@app.command("show")
def show(
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
    with front(ledger) as ops:
        found = ops.jobs() if name is None else [ops.job(name)]
    if as_json:
        documents = [document(job) for job in found]
        print_json(documents if name is None else documents[0])
    elif name is not None:
        _draw_one(found[0])
    elif found:
        columns = ("job", "type", "timeout", "retries", "overlap", "misfire", "queue", "nodes", "what it does")
        draw_rows(columns, map(_cells, found), spare=("misfire", "overlap", "retries"))
    else:
        print("there are no jobs yet; a node brings those of its application when it starts: fencepost run APP")
    return Exit.OK


def _cells(job: JobRecord) -> tuple[str, ...]:
    first_line = f"renamed to {job.renamed_to}" if job.renamed_to else (job.doc or "").partition("\n")[0]
    words = (str(job.policy.get(name, "")) for name in ("retries", "overlap", "misfire", "queue"))
    return (job.name, job.type, spelled(job.policy.get("timeout", 0)), *words, str(job.nodes), first_line)


def _draw_one(job: JobRecord) -> None:
    known = {"job": job.name} | ({"renamed to": job.renamed_to} if job.renamed_to else {})
    known |= {"does": job.doc or "", "on living nodes": str(job.nodes), "seen": to_the_second(job.seen_at)}
    policy = {name: _shown(name, value) for name, value in job.policy.items() if value is not None}
    draw_fields(known | {"parameters": _parameters(job.signature), "strategy": job.strategy or ""} | policy)


def _shown(name: str, value: object) -> str:
    if name in _DURATIONS and isinstance(value, int | float):
        return spelled(value)
    if name == "backoff" and isinstance(value, dict) and {"base", "cap", "factor"} <= set(value):
        return f"{spelled(value['base'])}, each time {value['factor']:g} times as long, up to {spelled(value['cap'])}"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _parameters(signature: Mapping[str, Any]) -> str:
    """Describe the parameters of the job, one per line."""
    from fencepost.core.parameters import Signature  # noqa: PLC0415 - only this shows them
    from fencepost.errors import InvalidParameters  # noqa: PLC0415

    try:
        takes = Signature.from_json(json.dumps(dict(signature)))
    except InvalidParameters:  # a newer release may describe them differently
        return json.dumps(dict(signature))
    lines = [
        f"{each.name}: {each.kind.spelled}{'' if each.is_required else ' (optional)'}" for each in takes.parameters
    ]
    return "\n".join([*lines, *(["any others"] if takes.takes_more else [])]) or "none"
