"""``fencepost audit``: the acts of people, and whether their record was changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import (
    By,
    Json,
    LedgerUrlOption,
    NeededReason,
    Tz,
    front,
    needed_reason,
    needed_time,
    who,
)
from fencepost.cli.output import counted, draw_rows, print_json, print_line, to_the_second
from fencepost.cli.run_rows import beginning
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app.records.audit import AnchorRecord, AuditRecord, VerifiedRecord

app = typer.Typer(
    help="What people did, in a chain of hashes that shows whether it was changed.",
    no_args_is_help=True,
)

Anchors = Annotated[
    list[Path] | None,
    typer.Option("--anchor", metavar="FILE", help="A file with lines of `fencepost audit anchor`.", show_default=False),
]


@app.command("list")
def list_entries(
    *,
    job: Annotated[str, typer.Option(metavar="JOB", help="Only about this job.", show_default=False)] = "",
    run: Annotated[int | None, typer.Option(metavar="RUN", help="Only about this run.", show_default=False)] = None,
    who_: Annotated[str, typer.Option("--who", metavar="NAME", help="Only what NAME did.", show_default=False)] = "",
    act: Annotated[
        str, typer.Option(metavar="ACT", help="Only this act, such as retry, done or refused.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="N", help="Only entries older than number N.", show_default=False)
    ] = None,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show what people did, newest first.

    Example: fencepost audit list --who ann
    """
    with front(ledger) as ops:
        found = ops.audit.entries(
            job=job or None, who=who_ or None, act=act or None, run_id=run, before_n=before, limit=limit
        )
        if job and not found:
            ops.job(job)  # raises for a misspelt name; a forgotten job may still have entries
    if as_json:
        print_json([document(entry) for entry in found])
    elif found:
        columns = ("n", "at", "who", "how", "act", "job", "run", "schedule", "outcome", "reason", "details")
        draw_rows(columns, map(_cells, found), spare=("how", "outcome", "schedule"))
    else:
        print("the audit has no such entry")
    return Exit.OK


@app.command("verify")
def verify(*, anchor: Anchors = None, ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Compare the whole chain with itself and with anchors.

    Ends with 0 if it is intact, with 1 if it is broken, and with 2 if all anchors are of entries that were pruned.

    Without an anchor, this does not detect a person who can write to the database and recomputes all hashes.

    Example: fencepost audit verify --anchor anchors.jsonl
    """
    from fencepost.app.auditing import read_anchors  # noqa: PLC0415 - it loads the ledger

    anchors: list[AnchorRecord] = []
    for file in anchor or ():
        read = read_anchors([_read(file)])
        if not read:
            raise ConfigurationError(f"{file} has no line of `fencepost audit anchor`; nothing was compared")
        anchors += read
    with front(ledger) as ops:
        found = ops.audit.verify(anchors)
    if as_json:
        print_json(document(found))
    elif found.is_intact:
        _print_intact(found, is_anchored=bool(anchors))
    else:
        print(f"broken: {found.first_break}")
        for each in found.breaks:
            print(f"  {each}")
    if found.is_intact and anchors and not found.anchors:
        return Exit.BAD_INPUT  # the requested comparison was not possible
    return Exit.OK if found.is_intact else Exit.UNKNOWN


def _print_intact(found: VerifiedRecord, *, is_anchored: bool) -> None:
    sentence = f"intact: {counted(found.entries, 'entry', 'entries')}"
    sentence += f", {found.from_n} to {found.through_n}" if found.entries else ""
    print(f"{sentence}; compared with {counted(found.anchors, 'anchor') if is_anchored else 'no anchor'}")
    if found.pruned_anchors:
        print(f"{counted(found.pruned_anchors, 'anchor')} of entries that were pruned could not be compared")


@app.command("anchor")
def anchor(*, ledger: LedgerUrlOption = "") -> int:
    """Print the end of the chain as a line of JSON. Keep it where no user who can write to the database can change it.

    Example: fencepost audit anchor | tee -a anchors.jsonl
    """
    with front(ledger) as ops:
        print_line(document(ops.audit.anchor()))
    return Exit.OK


@app.command("export")
def export(
    *,
    after: Annotated[int, typer.Option(metavar="N", min=0, help="Only entries after number N.")] = 0,
    ledger: LedgerUrlOption = "",
) -> int:
    """Print the chain, oldest entry first, one JSON object per line: n, prev, hash, entry.

    Example: fencepost audit export > audit.jsonl
    """
    with front(ledger) as ops:
        for line in ops.audit.export(after_n=after):
            print(line)
    return Exit.OK


@app.command("prune")
def prune(
    *,
    before: Annotated[
        str, typer.Option(metavar="TIME", help="Remove entries from before this time, or older than 24h.")
    ],
    tz: Tz = "",
    reason: NeededReason = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
) -> int:
    """Remove the beginning of the chain. The rest still verifies, and the removal is an entry.

    Example: fencepost audit prune --before 2025-01-01T00:00Z --reason 'kept for a year'
    """
    why = needed_reason(reason)
    with front(ledger) as ops:
        limit = needed_time(before, what="--before", now=ops.now(), tz=tz)
        count = ops.audit.prune(before=limit, by=who(by), reason=why)
    print(f"removed {counted(count, 'entry', 'entries')}")
    return Exit.OK


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error


def _cells(entry: AuditRecord) -> tuple[str, ...]:
    return (
        str(entry.n),
        f"{to_the_second(entry.at)} {'(damaged)' if entry.damaged else ''}".strip(),
        entry.who,
        entry.how or "",
        entry.act,
        entry.job or "",
        str(entry.run_id or ""),
        entry.schedule or "",
        entry.outcome or "",
        beginning(entry.reason or ""),
        beginning(_details(entry.detail)),
    )


def _details(detail: object) -> str:
    """Return details in a line, such as what was given to whom; a row edited by hand may have anything there."""
    if not isinstance(detail, dict):
        return "" if detail is None else str(detail)
    return " ".join(f"{name}={_value(value)}" for name, value in detail.items())


def _value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
