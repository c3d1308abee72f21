"""Prints the events of one simulation, line by line, to debug it."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.core.events import Event
from fencepost.proof.history import Entry, EntryKind
from fencepost.testing.simulation.outcome import SeedOutcome

_DULL = frozenset({"renewed", "acquired", "released", "refused"})


def timeline(outcome: SeedOutcome) -> Iterator[str]:
    """Return the lines of a simulation, from beginning to end."""
    yield str(outcome.plan)
    entries = outcome.evidence.history.entries
    lines = [(entry.at, _spelled(entry)) for entry in entries if not _is_dull(entry)]
    lines += [(at, _emitted(process, event)) for at, process, event in outcome.emitted if str(event.what) not in _DULL]
    for at, line in sorted(lines, key=lambda line: line[0]):
        yield f"{at:9.4f}  {line}"


def _emitted(process: str, event: Event) -> str:
    about = (event.what, event.job, event.run_id, event.lock, event.reason)
    return f"{process} emits: " + " ".join(str(each or "") for each in about)


def _is_dull(entry: Entry) -> bool:
    of_lease = entry.what in ("acquire", "release", "renew", "open", "close")
    return of_lease and (entry.kind is EntryKind.INVOKE or (entry.what == "renew" and entry.kind is EntryKind.OK))


def _spelled(entry: Entry) -> str:
    token = "" if entry.token is None else f" under {entry.token}"
    detail = f" {dict(entry.detail)}" if entry.detail else ""
    return f"{entry.node} {entry.what} {entry.name}{token}: {entry.kind}{detail}"
