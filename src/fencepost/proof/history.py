"""What happened, call by call: the input of every checker.

A call to a store, a ledger or a resource has two entries: `INVOKE`, then `OK`, `REFUSED` or `UNKNOWN`. `UNKNOWN` means
that there was no answer: it may have happened, or may still happen. A call without a second entry was interrupted by
the end of its caller, and is unknown too. Everything else, such as a fault or the beginning of a function, is a single
`NOTE`.

`at` is the time of one clock for all nodes, which is virtual in a simulation. Entries are ordered by it. The nodes' own
clocks do not appear here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EntryKind(StrEnum):
    """What an entry says about its call."""

    INVOKE = "invoke"
    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a history. The entries of one call have the same `call`.

    `name` is the lock, resource, run or key of the call. `token` and `grant` are those of the request or of the answer;
    `store_us` is the store's time if the answer has it.
    """

    at: float
    kind: EntryKind
    what: str
    node: str
    call: int = 0
    name: str = ""
    session: str = ""
    token: int | None = None
    grant: str = ""
    store_us: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


class History:
    """Entries in the order in which they happened."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = list(entries)
        self._calls = 0

    def note(self, at: float, what: str, node: str, **more: Any) -> None:
        """Add an entry that is not a call."""
        self.entries.append(Entry(at, EntryKind.NOTE, what, node, **more))

    def invoke(self, at: float, what: str, node: str, **more: Any) -> int:
        """Add the beginning of a call, and return its number."""
        self._calls += 1
        self.entries.append(Entry(at, EntryKind.INVOKE, what, node, call=self._calls, **more))
        return self._calls

    def end(self, call: int, at: float, kind: EntryKind, what: str, node: str, **more: Any) -> None:
        """Add the end of a call."""
        self.entries.append(Entry(at, kind, what, node, call=call, **more))

    def of(self, what: str) -> Iterator[Entry]:
        """Return the entries of one kind."""
        return (entry for entry in self.entries if entry.what == what)

    def fingerprint(self) -> str:
        """Return a hash of all entries, which is the same each time for one seed."""
        digest = hashlib.sha256()
        for entry in self.entries:
            digest.update(repr(_told(entry)).encode())
        return digest.hexdigest()


def _told(entry: Entry) -> tuple[object, ...]:
    """Return an entry's content in a fixed order. A tuple, because thousands of them are hashed for every seed."""
    about = (entry.call, entry.name, entry.session, entry.token, entry.grant, entry.store_us)
    return (entry.at, entry.kind.value, entry.what, entry.node, *about, sorted(entry.detail.items()))
