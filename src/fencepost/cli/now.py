"""``fencepost now``: what needs a person; ``fencepost acknowledge``: somebody knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, Reason, front, who
from fencepost.cli.output import answer, print_json, to_the_second, visible
from fencepost.cli.remote.server import chosen_server
from fencepost.core.duration import typed_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost.app.records.concerns import ConcernRecord

What = Annotated[str, typer.Argument(metavar="WHAT", help="What it is, such as given-up.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, as fencepost now shows it.")]


def now(*, ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show what needs a person, worst first, and what a person has acknowledged.

    Exit code 3: something needs a person.

    Example: fencepost now
    """
    with front(ledger) as ops:
        at, found = ops.now(), ops.concerns.list()
    needing = [each for each in found if each.acknowledged is None]
    if as_json:
        print_json([document(each) for each in found])
    else:
        for line in _lines(needing):
            print(visible(line))
        if not needing:
            where = "" if chosen_server(ledger) is None else " in the jobs that you may see"
            print(f"nothing needs a person{where}; looked at {to_the_second(at)} by the ledger's clock")
        for line in _known_lines([each for each in found if each.acknowledged is not None]):
            print(visible(line))
    return Exit.NOT_WELL if needing else Exit.OK


def acknowledge(
    what: What,
    id: Id,
    *,
    note: Annotated[str, typer.Option(metavar="TEXT", help="What is known, for others.", show_default=False)] = "",
    until: Annotated[
        str, typer.Option(metavar="TIME", help="Until when, such as 2026-03-29T06:00Z.", show_default=False)
    ] = "",
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="For how long, such as 2h.", show_default=False)
    ] = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Say that you know of something that needs a person. It is shown apart, with your name and note.

    It needs a person again when its time is over, or when it happens anew.

    Example: fencepost acknowledge given-up settle@1774747800000000.42 --note 'the bank is down' --for 2h
    """
    lasts = typed_duration(for_, what="--for")
    with front(ledger) as ops:
        ops.concerns.acknowledge(what, id, by=who(by), note=note or None, until=until or None, duration=lasts)
    return answer({"what": what, "id": id, "acknowledged": True}, f"{what} {id} is acknowledged", as_json=as_json)


def unacknowledge(
    what: What, id: Id, *, reason: Reason = "", by: By = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Withdraw an acknowledgement, of whoever it is.

    Example: fencepost unacknowledge given-up settle@1774747800000000.42 --reason 'the bank is back'
    """
    with front(ledger) as ops:
        ops.concerns.unacknowledge(what, id, by=who(by), reason=reason or None)
    return answer({"what": what, "id": id, "acknowledged": False}, f"{what} {id} needs a person again", as_json=as_json)


def _lines(found: list[ConcernRecord]) -> Iterator[str]:
    for each in found:
        since = f" since {to_the_second(each.since_at)}" if each.since_at else ""
        yield f"{each.level}: {each.sentence}"
        yield f"    {each.what} {each.id}{since}"
        yield f"    {each.command}: {each.consequence}"


def _known_lines(found: list[ConcernRecord]) -> Iterator[str]:
    for each in found:
        known = each.acknowledged
        if known is not None:
            until = f" until {to_the_second(known.until_at)}" if known.until_at else ""
            yield f"known to {known.by}{until}: {each.sentence}" + (f" ({known.note})" if known.note else "")
            yield f"    {each.what} {each.id}"
