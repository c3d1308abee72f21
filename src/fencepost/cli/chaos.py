"""``fencepost chaos``: test on your own store what Fencepost survives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, ledger_url
from fencepost.cli.output import counted, draw_rows, print_json, say, visible
from fencepost.core.duration import spelled, typed_seconds
from fencepost.core.secrets import scrub
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.proof.chaos.outcome import ChaosOutcome

_LONGEST_MINUTES = 24 * 60.0  # a day; histories grow all the time, and are checked in memory
_MOST_TOLD = 20  # violations in full; the table counts all, and --json has all


def chaos(
    *,
    store: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The lease store to take locks in. Default: beside the ledger.", show_default=False
        ),
    ] = "",
    ledger: LedgerUrlOption = "",
    nodes: Annotated[int, typer.Option(min=2, max=20, help="How many nodes.")] = 3,
    minutes: Annotated[float, typer.Option(help="For how long things go wrong.")] = 5.0,
    ttl: Annotated[str, typer.Option(metavar="DURATION", help="The ttl of nodes and locks.")] = "3s",
    seed: Annotated[
        int | None, typer.Option(help="Decides which faults, in which order; random by default.", show_default=False)
    ] = None,
    gap: Annotated[str, typer.Option(metavar="DURATION", help="From one fault to the next, on average.")] = "1s",
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep histories and logs there.", show_default=False)
    ] = None,
    remove: Annotated[
        str,
        typer.Option(
            metavar="PREFIX", help="Only remove the tables and keys of a run that was killed.", show_default=False
        ),
    ] = "",
    as_json: Json = False,
) -> int:
    """Kill, stop and cut off real nodes and lock holders on your own store, then check every promise.

    It makes its own tables and keys under a random prefix, changes nothing else, and removes them
    at the end, also after Ctrl-C. Nodes run ten jobs that are due every second or two; other processes
    contend for locks. It does not stop any server.

    Exit code 1: a promise was broken. Ctrl-C ends the faults, and checks what happened until then.

    Example: fencepost chaos --ledger postgresql://localhost/test --store redis://localhost --minutes 5
    """
    from fencepost.proof.chaos.course import ChaosOptions, Course  # noqa: PLC0415 - only this needs them
    from fencepost.proof.chaos.namespace import checked_prefix, namespace, new_prefix  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    if not 0 < minutes <= _LONGEST_MINUTES:
        raise ConfigurationError(f"--minutes {minutes:g} must be more than 0 and at most {_LONGEST_MINUTES:g}")
    runtime = ThreadedRuntime()
    prefix = checked_prefix(remove) if remove else new_prefix(runtime)
    url = ledger_url(ledger)
    space = namespace(ledger=url, store=store or None, prefix=prefix)
    if remove:
        space.remove(runtime)
        return Exit.OK
    options = ChaosOptions(
        nodes=nodes,
        seconds=minutes * 60,
        ttl_s=typed_seconds(ttl, what="--ttl"),
        seed=int(runtime.random() * 1_000_000) if seed is None else seed,
        gap_s=typed_seconds(gap, what="--gap"),
        keep=keep,
    )
    report = _reporter(as_json=as_json)
    report(_what_happens(url, store, minutes))
    with runtime.on_signals(("TERM",), _interrupt):  # what Ctrl-C does
        outcome = Course(space, options, runtime, report).run()
    if as_json:
        print_json(outcome.to_json())
    else:
        draw(outcome)
    return 1 if outcome.violations else Exit.OK


def _what_happens(ledger: str, store: str, minutes: float) -> str:
    """Say where things will go wrong, and for how long, before anything does."""
    locks = f"locks in {scrub(store)}" if store else "locks beside it"
    return (
        f"chaos on the ledger {scrub(ledger)}, {locks}: kills, stops and cuts off nodes and lock holders of its own "
        f"for {spelled(minutes * 60)}, then checks and removes what it made; Ctrl-C ends it before"
    )


def _interrupt(_: int) -> None:
    raise KeyboardInterrupt


def _reporter(*, as_json: bool) -> Callable[[str], None]:
    """Return where to report progress: on standard error if JSON goes to standard output."""

    def report(line: str) -> None:
        print(visible(line), file=sys.stderr if as_json else sys.stdout, flush=True)

    return report


def draw(outcome: ChaosOutcome) -> None:
    """Show it to people."""
    draw_rows(("fault", "times"), [(kind, str(times)) for kind, times in outcome.by_kind.items()])
    fires = outcome.fires
    say(
        f"\n{counted(len(outcome.faults), 'fault')}. Due {fires.due}: ran {fires.ran}, skipped {fires.skipped}, "
        f"misfired {fires.misfired}, under way {fires.under_way}; {counted(fires.lost_attempts, 'attempt')} lost. "
        f"{counted(outcome.grants, 'grant')} of locks, {counted(outcome.effects, 'effect')}.\n"
    )
    draw_rows(("checked", "violations"), [(name, str(len(found))) for name, found in outcome.checks.items()])
    takeover = outcome.to_json()["takeover"]
    say(
        f"\nTakeover: {takeover['count']} of them, p50 {_s(takeover['p50_s'])}, p99 {_s(takeover['p99_s'])} "
        f"(at most {spelled(takeover['bound_s'])}); {takeover['disturbed']['count']} more with no undisturbed peer, "
        f"the longest {_s(takeover['disturbed']['longest_s'])}."
    )
    for violation in outcome.violations[:_MOST_TOLD]:
        say(f"VIOLATION  {violation}")
    say(f"Seed {outcome.seed}: " + ("every promise was kept" if not outcome.violations else "A PROMISE WAS BROKEN"))


def _s(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
