"""``fencepost tune``: the chunk size of a bulk job, the memory it takes, and a better size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.acts import Params, typed_params
from fencepost.cli.applications import AppSpec, Reached, reached
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import JobName, Json, LedgerUrlOption, Tz
from fencepost.cli.output import draw_fields, print_json, say
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.tuning import Tuning


def tune(
    job: JobName,
    *,
    step: Annotated[str, typer.Option(metavar="STEP", help="Only this step.", show_default=False)] = "",
    params: Params = None,
    first: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The beginning of the window that is read.")
    ] = "",
    last: Annotated[str, typer.Option("--to", metavar="TIME", help="Its end. Default: now.")] = "",
    tz: Tz = "",
    pages: Annotated[int, typer.Option(min=1, max=10_000, help="How many pages to read.")] = 20,
    spec: AppSpec = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Read some pages with the job's own reader, and show how its chunk size is computed. Nothing is written.

    The memory of a job is workers × (items × bytes × copies + overhead). Copies are the pages in the memory of one
    worker at once: the page that is written, its processed items, the page being read, and the pages read ahead.

    Example: fencepost tune settle

    Example: fencepost tune settle -p region=eu --from 24h
    """
    from fencepost.app.users_code import explained, made_with  # noqa: PLC0415 - it loads the engine
    from fencepost.bulk.tuning import tune as work_out  # noqa: PLC0415

    with reached(spec, ledger) as here:
        made = here.bulk(job)
        typed = here.operations.read_params(job, typed_params(params or []))
        given = made.declared.bound(made.job.signature.validate(typed, job=job))
        bulk = made_with(made, given)
        steps = [bulk.step(step)] if step else [each for each in bulk.steps if each.read is not None]
        values = {**given, **_window(here, first, last, tz)}
        with explained(f"bulk job {job!r}: reading"):
            found = [(each, work_out(each, _surroundings(here, each, values), pages=pages)) for each in steps]
    if as_json:
        print_json({"job": job, "steps": [_fields(each, tuning) for each, tuning in found]})
        return Exit.OK
    for each, tuning in found:
        _draw(f"{job}, step {each.name}", each, tuning)
    return Exit.OK


def _surroundings(here: Reached, step: Step, values: dict[str, Any]) -> Any:
    from fencepost.bulk.places import surroundings_beside  # noqa: PLC0415 - it loads the engine

    return surroundings_beside(step, here.ledger, values)


def _window(here: Reached, first: str, last: str, tz: str) -> dict[str, Any]:
    """Return the window for queries: by default an empty one at the present time, as of a run requested now."""
    from fencepost.cli.times import instant_us  # noqa: PLC0415 - time zones take their time to load
    from fencepost.core.tick import instant  # noqa: PLC0415

    now_us = here.ledger.now_us()
    last_us = instant_us(last, what="--to", now_us=now_us, tz=tz or None) if last else now_us
    first_us = instant_us(first, what="--from", now_us=now_us, tz=tz or None) if first else last_us
    if first_us > last_us:
        raise ConfigurationError("the window ends before it begins: --from is after --to")
    return {"window_start": instant(first_us), "window_end": instant(last_us)}


def _fields(step: Step, tuning: Tuning) -> dict[str, Any]:
    sample, suggested = tuning.sample, tuning.suggested
    return {
        "step": step.name,
        "sample": {
            "items": sample.items,
            "pages": sample.pages,
            "took_s": round(sample.took_s, 6),
            "rate": round(sample.rate),
            "bytes_per_item": round(sample.bytes_per_item, 1),
            "all": sample.is_all,
        },
        "copies": tuning.copies,
        "workers": tuning.workers,
        "limits": [{"items": limit.items, "why": limit.why} for limit in tuning.limits],
        "chunk": tuning.chunk,
        "peak_bytes": tuning.peak_bytes(tuning.chunk),
        "suggested": {
            "chunk": suggested.items,
            "why": suggested.why,
            "peak_bytes": tuning.peak_bytes(suggested.items),
        }
        if sample.items
        else None,
    }


def _draw(title: str, step: Step, tuning: Tuning) -> None:
    from fencepost.bulk.tuning import mb  # noqa: PLC0415 - it loads the engine

    sample = tuning.sample
    if not sample.items:
        say(f"{title}: there is nothing to read, so nothing could be measured; give it a window by --from and --to?")
        return
    allow = "; ".join(f"{limit.why} allows {limit.items:,}" for limit in tuning.limits)
    read_ahead = step.options.read_ahead
    suggested = tuning.suggested
    draw_fields(
        {
            "job": title,
            "measured": f"{sample.items:,} items{' (all there are)' if sample.is_all else ''} in {sample.pages} pages "
            f"and {sample.took_s:.3g} s: {sample.rate:,.0f} items/s, {sample.bytes_per_item:,.0f} bytes each in memory",
            "copies": f"{tuning.copies}: the page that is written, what was made of it, the page on its way, and "
            f"{read_ahead} read ahead",
            "workers": f"{tuning.workers} (partitions)",
            "chunk": f"{tuning.chunk:,} items: {allow}{_by_time(step)}",
            "memory": _arithmetic(tuning, tuning.chunk),
            "suggested": f"chunk={suggested.items}: {suggested.why}",
            "then": "" if suggested.items == tuning.chunk else _arithmetic(tuning, suggested.items),
        }
    )
    if tuning.is_beyond_budget and step.options.sizing.memory_bytes is not None:
        say(
            f"memory={mb(step.options.sizing.memory_bytes)} is less than {tuning.workers} workers take before their "
            "first item, so chunks have one item each; give more memory, or fewer partitions"
        )


def _by_time(step: Step) -> str:
    limit_s = step.options.sizing.chunk_time_s
    return "" if limit_s is None else f"; chunk_time={limit_s:g}s is measured while it runs"


def _arithmetic(tuning: Tuning, chunk: int) -> str:
    from fencepost.bulk.tuning import mb  # noqa: PLC0415 - as above
    from fencepost.core.sizing import OVERHEAD_BYTES  # noqa: PLC0415

    return (
        f"{chunk:,} items × {tuning.sample.bytes_per_item:,.0f} bytes × {tuning.copies} copies × {tuning.workers} "
        f"workers + {mb(OVERHEAD_BYTES)} × {tuning.workers} of overhead = {mb(tuning.peak_bytes(chunk))}"
    )
