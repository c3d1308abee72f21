"""``fencepost restored``: decide about a ledger that was restored from a dump, or copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, NeededReason, front, needed_reason, who
from fencepost.cli.output import counted, print_json
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app.records import DecisionRecord, StandingRecord
    from fencepost.app.restored import PendingWord

_KINDS: tuple[PendingWord, ...] = ("hold", "run", "cancel")


def restored(
    *,
    accept: Annotated[
        bool, typer.Option("--accept", help="It is the same ledger, and the one it replaces is gone.")
    ] = False,
    as_copy: Annotated[
        bool, typer.Option("--as-copy", help="It is a copy: the original goes on elsewhere. It gets a new identity.")
    ] = False,
    pending: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="With --accept: what to do with runs that had not ended in the dump: hold, run or cancel.",
        ),
    ] = "hold",
    id_gap: Annotated[
        int,
        typer.Option(min=1, help="With --accept: how many run ids to leave out, so that none is given a second time."),
    ] = 1_000_000,
    unnoticed: Annotated[
        bool,
        typer.Option(
            "--unnoticed", help="Decide although no difference was noticed, because all nodes were stopped meanwhile."
        ),
    ] = False,
    reason: NeededReason = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Decide about a ledger that was restored from a dump, or copied. Until then nodes plan and claim nothing.

    Without --accept or --as-copy: show whether a decision is needed. Exit code 3: it is.

    --accept skips the due times since the dump, one row per schedule ('restored: unknown'); repeat what is needed with
    fencepost backfill. --as-copy cancels every unfinished run, and pauses schedules that were made at run time.

    Example: fencepost restored

    Example: fencepost restored --accept --reason 'the disk of db1 failed; dump of 03:00'
    """
    if accept and as_copy:
        raise ConfigurationError("--accept or --as-copy? It is the same ledger, or another one")
    _word(pending)
    with front(ledger) as ops:
        if not accept and not as_copy:
            return _show(ops.restored.standing(), as_json=as_json)
        signed: dict[str, Any] = {"by": who(by), "reason": needed_reason(reason), "unnoticed": unnoticed}
        if as_copy:
            done = ops.restored.as_copy(**signed)
        else:
            done = ops.restored.accept(pending=_word(pending), id_gap=id_gap, **signed)
    if as_json:
        print_json(document(done))
    else:
        print(_sentence(done, pending="cancel" if as_copy else pending))
    return Exit.OK


def _word(pending: str) -> PendingWord:
    for word in _KINDS:
        if pending == word:
            return word
    raise ConfigurationError(f"--pending {pending!r} is not known; there are {', '.join(_KINDS)}")


def _show(seen: StandingRecord, *, as_json: bool) -> int:
    if as_json:
        print_json(document(seen))
    elif seen.changed:
        print(f"not the same {' and '.join(seen.changed)} as noted: decide with --accept or --as-copy (see --help)")
    elif seen.why is not None:
        print(seen.why)
    else:
        print("the ledger is where it was; there is nothing to decide")
    return Exit.NOT_WELL if seen.held else Exit.OK


def _sentence(done: DecisionRecord, *, pending: str) -> str:
    runs = {"hold": "held for a person: fencepost runs --held", "run": "left as it was", "cancel": "cancelled"}[pending]
    skipped = f"{counted(done.skipped, 'schedule')} planned from now on"
    paused = f"; {counted(done.paused, 'schedule')} made at run time paused" if done.paused else ""
    settled = f"{counted(done.runs, 'unfinished run')} {runs}" if pending != "run" else "unfinished runs go on"
    return f"accepted: {skipped}; {settled}{paused}"
