"""``fencepost restored``: decide about a ledger that was restored from a dump, or copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, NeededReason, needed_reason, opened, who
from fencepost.cli.output import counted, print_json
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.restoring import Restored

_KINDS = ("hold", "run", "cancel")


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
            help="With --accept: what becomes of runs that had not ended in the dump: hold, run or cancel.",
        ),
    ] = "hold",
    id_gap: Annotated[
        int,
        typer.Option(min=1, help="With --accept: how many run ids to leave out, so that none is given a second time."),
    ] = 1_000_000,
    unnoticed: Annotated[
        bool, typer.Option("--unnoticed", help="Decide though nothing was noticed: all nodes were stopped meanwhile.")
    ] = False,
    reason: NeededReason = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Decide about a ledger that was restored from a dump, or copied. Until then nodes plan and claim nothing.

    Without --accept or --as-copy: say whether there is anything to decide. Exit code 3: there is.

    --accept skips the due times since the dump, one row per schedule ('restored: unknown'); repeat what is needed with
    fencepost backfill. --as-copy cancels every unfinished run, and pauses schedules that were made at run time.

    Example: fencepost restored

    Example: fencepost restored --accept --reason 'the disk of db1 failed; dump of 03:00'
    """
    if accept and as_copy:
        raise ConfigurationError("--accept or --as-copy? It is the same ledger, or another one")
    if pending not in _KINDS:
        raise ConfigurationError(f"--pending {pending!r} is not known; there are {', '.join(_KINDS)}")
    with opened(ledger) as book:
        if not accept and not as_copy:
            return _show(book, as_json=as_json)
        why = needed_reason(reason)
        if not unnoticed:
            _refuse_without_cause(book)
        done = _decide(book, pending, id_gap, why=why, by=who(by), is_copy=as_copy)
    if as_json:
        print_json({"copy": as_copy, **done._asdict()})
    else:
        print(_sentence(done, pending="cancel" if as_copy else pending))
    return Exit.OK


def _decide(book: Ledger, pending: str, id_gap: int, *, why: str, by: str, is_copy: bool) -> Restored:
    from fencepost.app.held import lease_identity  # noqa: PLC0415 - it loads the engine
    from fencepost.ledger.restoring import Pending, accept, as_copy  # noqa: PLC0415

    leases = lease_identity(book)
    if is_copy:
        return as_copy(book, by=by, reason=why, leases=leases)
    return accept(book, by=by, reason=why, runs=Pending(pending), id_gap=id_gap, leases=leases)


def _refuse_without_cause(book: Ledger) -> None:
    """Refuse to decide twice, or about another ledger than meant: runs would be held or cancelled for nothing."""
    from fencepost.app.held import standing_of  # noqa: PLC0415 - it loads the engine

    seen, changed = standing_of(book)
    if not changed and seen.held_why is None:
        raise ConfigurationError(
            f"{book.dialect.product} is the ledger it was, as far as anybody has noticed: there is nothing to decide. "
            "If it was restored by a physical backup or a snapshot while all nodes were stopped, say so: --unnoticed"
        )


def _show(book: Ledger, *, as_json: bool) -> int:
    from fencepost.app.held import standing_of  # noqa: PLC0415 - it loads the engine

    seen, changed = standing_of(book)
    is_held = bool(changed) or seen.held_why is not None
    if as_json:
        known = {"id": seen.ledger.ledger_id, "noted": seen.noted, "present": seen.present, "why": seen.held_why}
        print_json({"held": is_held, "changed": list(changed), **known})
    elif changed:
        print(f"not the same {' and '.join(changed)} as noted: decide with --accept or --as-copy (see --help)")
    elif seen.held_why is not None:
        print(seen.held_why)
    else:
        print("the ledger is where it was; there is nothing to decide")
    return Exit.NOT_WELL if is_held else Exit.OK


def _sentence(done: Restored, *, pending: str) -> str:
    runs = {"hold": "held for a person: fencepost runs --held", "run": "left as it was", "cancel": "cancelled"}[pending]
    skipped = f"{counted(done.skipped, 'schedule')} planned from now on"
    paused = f"; {counted(done.paused, 'schedule')} made at run time paused" if done.paused else ""
    settled = f"{counted(done.runs, 'unfinished run')} {runs}" if pending != "run" else "unfinished runs go on"
    return f"accepted: {skipped}; {settled}{paused}"
