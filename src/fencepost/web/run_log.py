"""The end of what a run wrote, as its page shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fencepost.core.log_chunks import plain

if TYPE_CHECKING:
    from fencepost.access import Authorized
    from fencepost.app.records import RunRecord

_MOST_LINES = 200
_MOST_CHARACTERS = 32_000
_PAGE = 500


class LogEnd(NamedTuple):
    """The last lines of an attempt. `is_cut`: it wrote more than these."""

    attempt: int
    text: str
    is_cut: bool


def log_end(ask: Authorized, run: RunRecord) -> LogEnd | None:
    """Return the last lines that the latest attempt of a run wrote, without control sequences.

    None before the first attempt. The end is what an operator needs of a failure; `fencepost logs` shows everything.
    """
    if not run.attempts:
        return None
    kept, after, is_cut = "", None, False
    while page := ask.log(run.id, attempt=run.attempts, after=after, limit=_PAGE):
        for record in page:
            missing = f"--- {record.missing:,} lines are not kept\n" if record.missing else ""
            kept, was_cut = _end(kept + missing + plain(record.text))
            is_cut = is_cut or was_cut
        after = page[-1].position
    return LogEnd(run.attempts, kept, is_cut)


def _end(text: str) -> tuple[str, bool]:
    lines = text[-_MOST_CHARACTERS:].splitlines(keepends=True)[-_MOST_LINES:]
    end = "".join(lines)
    return end, len(end) < len(text)
