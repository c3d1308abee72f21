"""``fencepost pause``, ``resume`` and ``pauses``: nodes claim nothing from a queue, or nothing at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import (
    By,
    Json,
    LedgerUrlOption,
    NeededReason,
    PauseFor,
    PauseUntil,
    Reason,
    front,
    needed_reason,
    who,
)
from fencepost.cli.messages import complain
from fencepost.cli.output import answer, counted, draw_rows, print_json, to_the_second
from fencepost.core.duration import typed_duration
from fencepost.core.nearest import suggestion
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.app.operations import Operations
    from fencepost.app.records import PauseRecord

_Queue = Annotated[str, typer.Option("--queue", metavar="QUEUE", help="This queue.", show_default=False)]
_All = Annotated[bool, typer.Option("--all", help="Everything.")]


def pause(
    *,
    queue: _Queue = "",
    everything: _All = False,
    until: PauseUntil = "",
    for_: PauseFor = "",
    reason: NeededReason = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Let nodes claim no run of a queue, or none at all, until it is resumed or until the end.

    Runs that execute go on. Schedules are planned; what is queued stays queued, and is claimed afterwards.

    Example: fencepost pause --queue mail --for 2h --reason 'the relay is down'

    Example: fencepost pause --all --reason 'the bank books twice'
    """
    why, what = needed_reason(reason), _what(queue, everything=everything)
    with front(ledger) as ops:
        made = ops.pauses.pause(
            what, by=who(by), reason=why, until=until or None, duration=typed_duration(for_, what="--for")
        )
    _warn(made)
    return answer(document(made), f"{made.sentence}. What runs goes on; to resume: {_command(made)}", as_json=as_json)


def resume(
    *,
    queue: _Queue = "",
    everything: _All = False,
    reason: Reason = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """End the pause of a queue, or that of everything: what waits is claimed, in its order.

    Example: fencepost resume --all
    """
    what = _what(queue, everything=everything)
    with front(ledger) as ops:
        done = ops.pauses.resume(what, by=who(by), reason=reason or None)
    name = "everything" if what is None else f"the queue {what!r}"
    words = f"{name} is resumed" if done.was_paused else f"{name} was not paused; nothing was done"
    words += "" if done.was_paused or what is None else _meant(what, done.left)
    shown = [each for each in done.left if not done.was_paused or what is None or each.concerns(what)]
    left = "".join(f"; {each.sentence}" for each in shown)
    return answer(document(done), words + left, as_json=as_json)


def _meant(queue: str, left: Sequence[PauseRecord]) -> str:
    """Return what to add where a queue was not paused: the paused one that was meant, or that none is."""
    found = [each.queue for each in left if each.queue is not None]
    near = suggestion(queue, found) if found else ""
    if near.startswith("did"):
        return f"; {near}"
    return "" if left else ", and nothing else is paused"


def pauses(*, ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show what is paused: everything, or queues; and how many schedules are: fencepost schedules list shows these.

    Example: fencepost pauses
    """
    with front(ledger) as ops:
        found = ops.pauses.list()
        resting = 0 if as_json else sum(each.paused_at is not None for each in ops.schedules.iterate())
    if as_json:
        print_json([document(each) for each in found])
        return Exit.OK
    if found:
        draw_rows(("what", "since", "until", "by", "reason"), map(_cells, found))
        for each in found:
            _warn(each)
    else:
        print("nothing is paused: neither everything nor a queue")
    if resting:
        print(f"{counted(resting, 'schedule')} {'is' if resting == 1 else 'are'} paused: fencepost schedules list")
    return Exit.OK


def pause_note(ops: Operations, queue: str) -> str:
    """Return what to add to the answer about a run of this queue: that it waits for a pause, or nothing."""
    found = next((each for each in ops.pauses.list() if each.concerns(queue)), None)
    return "" if found is None else f"it waits: {found.sentence}"


def _what(queue: str, *, everything: bool) -> str | None:
    """Return the queue; None for everything."""
    if bool(queue) == everything:
        raise ConfigurationError("say what: --queue QUEUE, or --all for everything")
    return queue or None


def _command(made: PauseRecord) -> str:
    return "fencepost resume --all" if made.queue is None else f"fencepost resume --queue {made.queue}"


def _warn(made: PauseRecord) -> None:
    if made.ignored_by:
        complain(
            f"these nodes have an older version, which does not know pauses, and go on: {', '.join(made.ignored_by)}. "
            "Stop or update them"
        )


def _cells(each: PauseRecord) -> tuple[str, ...]:
    what = "everything" if each.queue is None else f"queue {each.queue}"
    return what, to_the_second(each.paused_at), to_the_second(each.paused_until), each.paused_by, each.reason or ""
