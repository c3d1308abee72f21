"""What an attempt of a run wrote, as the page shows it: without control sequences, and no more than a person reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.core.log_chunks import plain

if TYPE_CHECKING:
    from fencepost.access import Authorized

_CHUNKS = 200  # records in one query, each with about a second of lines
LONGEST = 300_000  # characters: what is kept of an attempt is 256 kB


@dataclass(frozen=True, slots=True)
class ShownLog:
    """The log of one attempt. `missing` lines were not kept; `is_cut`: there is more than the page shows."""

    attempt: int
    text: str
    missing: int
    is_cut: bool


def shown_log(ask: Authorized, run_id: int, attempt: int) -> ShownLog:
    """Read the log of an attempt, page by page, up to a bound."""
    texts: list[str] = []
    length = missing = 0
    after: str | None = None
    while found := ask.log(run_id, attempt=attempt, after=after, limit=_CHUNKS):
        for each in found:
            if each.missing:
                texts.append(f"… {each.missing} lines were not kept …\n")
            missing += each.missing
            texts.append(each.text if each.text.endswith("\n") else f"{each.text}\n")
            length += len(each.text)
        if length > LONGEST:
            return ShownLog(attempt, plain("".join(texts)[:LONGEST]), missing, is_cut=True)
        after = found[-1].position
    return ShownLog(attempt, plain("".join(texts)), missing, is_cut=False)
