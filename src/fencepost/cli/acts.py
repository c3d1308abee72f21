"""Acts of operators on runs: trigger, retry, cancel, release, reprocess, back-fill. The journal records each."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fencepost.cli import messages
from fencepost.cli.documents import document
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import (
    By,
    JobName,
    Json,
    LedgerUrlOption,
    Reason,
    RunId,
    Tz,
    front,
    needed_time,
    since_when,
    who,
)
from fencepost.cli.output import answer, counted, draw_rows, print_json, to_the_second, visible
from fencepost.core.duration import typed_duration
from fencepost.core.states import TERMINAL
from fencepost.errors import AlreadyRequested, ConfigurationError, IllegalMove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fencepost.app.operations import Operations
    from fencepost.app.records import AttemptRecord, DueRecord, JobRecord, RunRecord
    from fencepost.ledger.requests import Retried

T = TypeVar("T")

Params = Annotated[
    list[str] | None,
    typer.Option("-p", "--param", metavar="NAME=VALUE", help="A parameter of the job. May be repeated."),
]
Again = Annotated[bool, typer.Option("--again", help="Request it even if the same is waiting or running already.")]

_POLL_EVERY_S = 0.5  # how late the end of the run is noticed, for a query each time
_PATIENCE_S = 5.0  # between two questions why the run still waits; only a new reason is printed
_FIRST_PATIENCE_S = 2.0  # a run that is claimed at once has begun by then; else people want to know why


def trigger(
    job: JobName,
    *,
    params: Params = None,
    reason: Reason = "",
    by: By = "",
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="TEXT",
            help="Your name for this request; a second request with it makes no new run.",
            show_default=False,
        ),
    ] = "",
    delay: Annotated[
        str, typer.Option(metavar="DURATION", help="Start no sooner than this long from now.", show_default=False)
    ] = "",
    again: Again = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended.")] = False,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Request a run of a job.

    Exit code 4: a run with the same parameters has not ended yet; nothing was requested. With --wait, exit code 3
    means that the run has ended without success.

    Example: fencepost trigger report -p month=2026-01 --reason 'the auditor asked' --wait
    """
    typed = typed_params(params or [])
    with front(ledger) as ops:
        job = _present_name(ops.job(job))
        with _duplicates_as_json(as_json=as_json):
            asked = ops.trigger(
                job,
                ops.read_params(job, typed),
                by=who(by),
                reason=reason or None,
                key=key or None,
                delay=typed_duration(delay, what="--delay"),
                again=again,
            )
        if not as_json:
            print(f"run {asked.run_id} of {job}" + ("" if asked.is_new else " (requested before, with the same key)"))
        paused = _paused(ops, asked.run_id)
        if not (paused or wait or as_json):
            _unserved(ops, asked.run_id)
        if wait:
            return _await(ops, asked.run_id, as_json=as_json)
    if as_json:
        print_json({"run": asked.run_id, "job": job, "new": asked.is_new, "paused": paused or None})
    return Exit.OK


def retry(
    run: RunId,
    *,
    params: Params = None,
    reason: Reason = "",
    by: By = "",
    again: Again = False,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Repeat a run that has ended, with the same parameters and window.

    With -p, the new run has other values for these parameters, and the rest as they were. It is other work:
    reprocess still repeats the first run if that was given up, and a bulk job begins anew for it.

    Exit code 4: a repetition of it has not ended yet; nothing was requested.

    Example: fencepost retry 42 --reason 'the disk is back'

    Example: fencepost retry 42 -p month=2026-02 --reason 'it was the wrong month'
    """
    typed = typed_params(params or [])
    with front(ledger) as ops, _duplicates_as_json(as_json=as_json):
        changed = _changed(ops, run, typed) if typed else None
        new = _on_run(
            run,
            "has ended can be repeated",
            lambda: ops.retry(run, by=who(by), reason=reason or None, again=again, params=changed),
        )
        if not _paused(ops, new) and not as_json:
            _unserved(ops, new)
    words = f" with {', '.join(sorted(typed))} changed" if typed else ""
    return answer({"run": new, "retry_of": run}, f"run {new} repeats run {run}{words}", as_json=as_json)


def _changed(ops: Operations, run_id: int, typed: dict[str, str]) -> dict[str, Any]:
    """Return the parameters of a run with those that were typed in place of its own."""
    found = ops.run(run_id)
    return {**found.params, **ops.read_params(found.job, typed)}


def cancel(run: RunId, *, reason: Reason = "", by: By = "", ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Cancel a run that has not begun, or stop one that is running.

    Example: fencepost cancel 42 --reason 'wrong month'
    """
    with front(ledger) as ops:
        outcome = ops.cancel(run, by=who(by), reason=reason or None)
    words = {"cancelled": "is cancelled", "requested": "runs; its node will stop it in a moment"}
    sentence = f"run {run} {words.get(str(outcome), 'had ended before; nothing was done')}"
    return answer({"run": run, "outcome": str(outcome)}, sentence, as_json=as_json)


def release(
    run: RunId, *, reason: Reason = "", by: By = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Release a run that is held for a person (on_crash = hold).

    fencepost runs --held lists them.

    Example: fencepost release 42 --reason 'looked at it: nothing was sent'
    """
    with front(ledger) as ops:
        _on_run(
            run,
            "is held for a person can be released",
            lambda: ops.release(run, by=who(by), reason=reason or None),
        )
    return answer({"run": run, "released": True}, f"run {run} may go on", as_json=as_json)


def reprocess(
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Runs that were given up. Required.")] = False,
    after_id: Annotated[
        int | None, typer.Option(metavar="ID", help="Only runs after this one; 0 for all.", show_default=False)
    ] = None,
    job: Annotated[str, typer.Option(metavar="JOB", help="Only runs of this job.", show_default=False)] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Only runs made since then: 24h, or 2026-03-29.", show_default=False)
    ] = "",
    tz: Tz = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    reason: Reason = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Repeat runs that were given up, each once, however often you call this.

    Example: fencepost reprocess --failed --after-id 1000 --job settle --reason 'the bank is back'
    """
    if not failed:
        raise ConfigurationError("which runs? reprocess repeats those that were given up: add --failed")
    if after_id is None and not since:
        raise ConfigurationError("from where on? Give --after-id ID (0 for all that are kept) or --since 24h")
    with front(ledger) as ops:
        if job:
            ops.job(job)
        repeated = ops.reprocess(
            after_id=after_id or 0,
            limit=limit,
            job=job or None,
            since=since_when(since, ops, tz=tz),
            by=who(by),
            reason=reason or None,
        )
    _print_repeated(repeated, as_json=as_json)
    return Exit.OK


def backfill(
    job: JobName,
    *,
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="The first due time, included.")],
    last: Annotated[str, typer.Option("--to", metavar="TIME", help="The last due time, included.")],
    tz: Tz = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the due times and request nothing.")] = False,
    schedule: Annotated[
        str, typer.Option(metavar="ID", help="Of a job with several schedules, only this one.", show_default=False)
    ] = "",
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="TEXT",
            help="Your name for this back-fill; a second call with it makes no new runs.",
            show_default=False,
        ),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="Refuse to request more runs than this.")] = 10_000,
    again: Again = False,
    reason: Reason = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Run the due times of a past period, each with its own window.

    Exit code 4: a back-fill of one of these due times has not ended yet; nothing was requested.

    Example: fencepost backfill settle --from 2026-01-01T00:00Z --to 2026-01-31T23:59Z --dry-run
    """
    with front(ledger) as ops:
        job = _present_name(ops.job(job))
        known, now = ops.job(job), ops.now()
        stretch = [needed_time(text, what=what, now=now, tz=tz) for text, what in ((first, "--from"), (last, "--to"))]
        if dry_run:
            _print_dues(ops.would_backfill(job, *stretch, schedule=schedule or None, limit=limit), as_json=as_json)
            return Exit.OK
        with _duplicates_as_json(as_json=as_json):
            made = ops.backfill(
                job,
                *stretch,
                by=who(by),
                reason=reason or None,
                schedule=schedule or None,
                key=key or None,
                limit=limit,
                again=again,
            )
        paused = _paused_queue(ops, str(known.policy.get("queue") or "default"))
        if made.new and not paused and not as_json:
            for newest in ops.runs(job=job, states=("queued",), limit=1):
                _unserved(ops, newest.id)
    count = f"{counted(made.new, 'run')} of {job}, for {counted(made.asked, 'due time')}"
    return answer(
        {"job": job, "key": made.key, "asked": made.asked, "new": made.new},
        f"requested {count}; to repeat this call safely: --key {made.key}",
        as_json=as_json,
    )


def _present_name(known: JobRecord) -> str:
    """Return the name under which runs of a job are requested now, and say so if it is another one."""
    if known.renamed_to is None:
        return known.name
    messages.complain(f"job {known.name} is called {known.renamed_to} now: this is requested under that name")
    return known.renamed_to


def _paused(ops: Operations, run_id: int) -> str:
    """Say that a run waits for a pause, if it does; return the sentence."""
    return _paused_queue(ops, ops.run(run_id).queue) if ops.pauses.list() else ""


def _unserved(ops: Operations, run_id: int) -> None:
    """Say why no node can take a run that could begin, if that is so."""
    from fencepost.app.records.runs import ABOUT_TO_BE_CLAIMED  # noqa: PLC0415

    run = ops.run(run_id)
    if run.state == "queued" or run.waits_for == "node":
        why = ops.waits(run_id)
        if why is not None and why != ABOUT_TO_BE_CLAIMED:
            messages.complain(visible(f"it waits: {why}"))


def _paused_queue(ops: Operations, queue: str) -> str:
    from fencepost.cli.pauses import pause_note  # noqa: PLC0415 - few things are paused

    sentence = pause_note(ops, queue)
    if sentence:
        messages.complain(visible(sentence))
    return sentence


@contextmanager
def _duplicates_as_json(*, as_json: bool) -> Iterator[None]:
    """With `as_json`, print which run has not ended yet. The sentence for people follows on standard error."""
    try:
        yield
    except AlreadyRequested as error:
        if as_json:
            known = {"run": error.run_id, "job": error.job, "new": False, "state": error.state}
            print_json(known | {"requested_by": error.requested_by, "requested_at": error.requested_at})
        raise


def typed_params(words: list[str]) -> dict[str, str]:
    """Read parameters as they were typed, ``-p name=value``."""
    typed: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            lacks, right = ("name", "NAME=VALUE") if equals else ("value", f"{name.strip()}=VALUE")
            raise ConfigurationError(f"parameter {word!r} has no {lacks}; write it as -p {right}")
        if name.strip() in typed:
            raise ConfigurationError(f"parameter {name.strip()!r} is given twice")
        typed[name.strip()] = value
    return typed


def _on_run(run_id: int, only: str, act: Callable[[], T]) -> T:
    """Call `act`. If the state of the run does not allow it, raise a sentence that ends in `only`."""
    try:
        return act()
    except IllegalMove as error:
        raise ConfigurationError(f"run {run_id} is {error.state}, and only a run that {only}") from error


def _print_repeated(repeated: list[Retried], *, as_json: bool) -> None:
    if as_json:
        print_json([{"run": each.run_id, "retry_of": each.old_id, "new": each.is_new} for each in repeated])
    elif not repeated:
        print("there is no such run that was given up")
    else:
        new = [each for each in repeated if each.is_new]
        before = f"; {len(repeated) - len(new)} had been repeated before" if len(new) < len(repeated) else ""
        are = "is" if len(new) == 1 else "are"
        print(f"{counted(len(new), 'run')} {are} repeated{before}; go on with --after-id {repeated[-1].old_id}")


def _print_dues(asked: list[DueRecord], *, as_json: bool) -> None:
    if as_json:
        print_json([document(each) for each in asked])
        return
    draw_rows(("schedule", "due", "window from"), map(_due_cells, asked))
    print(f"{counted(len(asked), 'run')} would be requested; nothing was done")


def _due_cells(due: DueRecord) -> tuple[str, ...]:
    start = None if due.window is None else due.window.start
    return (due.schedule or "", to_the_second(due.due_at), to_the_second(start))


def _ended(ops: Operations, run_id: int) -> RunRecord:
    """Wait for the end of the run. Report failed attempts, and now and then a change of what it waits for."""
    reported: str | None = None
    reported_attempt = 0
    report_at = ops.runtime.monotonic() + _FIRST_PATIENCE_S
    while (run := ops.run(run_id)).state not in TERMINAL:
        reported_attempt = _report_failed(ops, run, reported_attempt)
        if ops.runtime.monotonic() >= report_at:
            report_at += _PATIENCE_S
            why = ops.waits(run_id)
            if why is not None and why != reported:
                messages.complain(f"run {run_id}: {why}")
                reported = why
        ops.runtime.sleep(_POLL_EVERY_S)
    _report_failed(ops, run, reported_attempt)
    return run


def _report_failed(ops: Operations, run: RunRecord, reported: int) -> int:
    """Report attempts after number `reported` that did not succeed. Return the number of the last one seen.

    Skip the last attempt of a run that has ended: it is shown with the run.
    """
    if run.attempts <= reported:
        return reported
    last = run.attempts if run.state in TERMINAL else run.attempts + 1
    for each in ops.attempts(run.id):
        if reported < each.number < last:
            reported = each.number
            if each.outcome != "succeeded":
                messages.complain(visible(f"run {run.id}: attempt {each.number} {_outcome_line(each)}"))
    return reported


def _outcome_line(attempt: AttemptRecord) -> str:
    """Format the outcome as one line, such as failed: ValueError: it is empty."""
    first_line = (attempt.error or "").strip().partition("\n")[0]
    return ": ".join(part for part in (attempt.outcome.replace("_", " "), attempt.error_code, first_line) if part)


def _await(ops: Operations, run_id: int, *, as_json: bool) -> int:
    """Wait until the run has ended, then show it."""
    from fencepost.cli.run_rows import draw_run  # noqa: PLC0415

    try:
        run = _ended(ops, run_id)
    except KeyboardInterrupt:
        messages.complain(f"no longer waiting; run {run_id} continues: fencepost show {run_id}")
        raise
    ended = ops.attempts(run_id)
    if as_json:
        print_json({**document(run), "ended_attempts": [document(each) for each in ended]})
    else:
        draw_run(run, ended, waits=None, now=ops.now())
    return Exit.OK if run.state == "succeeded" else Exit.NOT_WELL
