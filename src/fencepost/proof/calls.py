"""Combines the entries of a history: one value per call, from when it was sent until it was answered.

A call without an answer may have taken effect at any moment after it was sent, or may still do so. Its end is never.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.proof.history import Entry, EntryKind, History

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `token` and `grant` are those of its answer if it has them, otherwise those of the request."""

    number: int
    what: str
    node: str
    name: str
    session: str
    sent_at: float
    ended_at: float
    kind: EntryKind
    token: int | None
    grant: str
    store_us: int | None
    detail: Mapping[str, Any]

    @property
    def is_ok(self) -> bool:
        """Whether the answer says that it happened."""
        return self.kind is EntryKind.OK

    @property
    def is_unknown(self) -> bool:
        """Whether it is unknown if it happened."""
        return self.kind is EntryKind.UNKNOWN

    def __str__(self) -> str:
        under = f" under token {self.token}" if self.token is not None else ""
        until = "never answered" if self.ended_at == NEVER else f"{self.kind} at {self.ended_at:.3f} s"
        return (
            f"{self.what} of {self.name or self.session!r} by {self.node}{under}, sent at {self.sent_at:.3f} s, {until}"
        )


def calls(history: History, *whats: str) -> list[Call]:
    """Return the calls of these kinds, or all, in the order in which they were sent."""
    ends = {entry.call: entry for entry in history.entries if entry.kind not in (EntryKind.INVOKE, EntryKind.NOTE)}
    wanted = frozenset(whats)
    return [
        _call(entry, ends.get(entry.call))
        for entry in history.entries
        if entry.kind is EntryKind.INVOKE and (not wanted or entry.what in wanted)
    ]


def faults(history: History) -> Iterator[tuple[Entry, str]]:
    """Return the faults that were injected, and the kind of each."""
    return ((entry, str(entry.detail.get("kind", ""))) for entry in history.of("fault"))


def _call(sent: Entry, answer: Entry | None) -> Call:
    is_known = answer is not None and answer.kind is not EntryKind.UNKNOWN
    last = answer or sent
    return Call(
        number=sent.call,
        what=sent.what,
        node=sent.node,
        name=sent.name or last.name,
        session=sent.session or last.session,
        sent_at=sent.at,
        ended_at=last.at if is_known else NEVER,
        kind=last.kind if is_known else EntryKind.UNKNOWN,
        token=last.token if last.token is not None else sent.token,
        grant=last.grant or sent.grant,
        store_us=last.store_us,
        detail={**sent.detail, **last.detail},
    )
