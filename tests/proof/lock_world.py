"""A lock store that is right by construction, and nodes that use it badly: whatever they saw can be explained.

Every call takes effect at a moment of its own between when it was sent and when it was answered. Replies get lost, with
their effect or without it; an effect may come long after its caller gave up. Sessions expire a ttl after their renewal.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fencepost.proof.history import Entry, EntryKind

TTL_S = 4.0


@dataclass
class Store:
    """The truth."""

    alive_until: dict[str, float] = field(default_factory=dict)
    holder: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # name → grant, session, token
    token: dict[str, int] = field(default_factory=dict)

    def current(self, name: str, at: float) -> tuple[str, str, int] | None:
        found = self.holder.get(name)
        return found if found is not None and self.alive_until.get(found[1], -1.0) > at else None

    def open(self, at: float, *, session: str) -> tuple[EntryKind, dict[str, Any]]:
        self.alive_until[session] = at + TTL_S
        return EntryKind.OK, {}

    def acquire(self, at: float, *, name: str, session: str, grant: str) -> tuple[EntryKind, dict[str, Any]]:
        if self.alive_until.get(session, -1.0) <= at:
            return EntryKind.REFUSED, {"detail": {"why": "lost"}}
        found = self.current(name, at)
        if found is not None and found[0] != grant:
            return EntryKind.REFUSED, {"detail": {"why": "held", "held_by": found[0]}}
        if found is None:
            self.token[name] = max(self.token.get(name, 0) + 1, round(at * 1000))
            self.holder[name] = (grant, session, self.token[name])
        return EntryKind.OK, {"token": self.holder[name][2]}

    def renew(self, at: float, *, name: str, session: str, grant: str) -> tuple[EntryKind, dict[str, Any]]:
        found = self.current(name, at)
        if self.alive_until.get(session, -1.0) > at:
            self.alive_until[session] = at + TTL_S
        return (EntryKind.OK if found is not None and found[0] == grant else EntryKind.REFUSED), {}

    def release(self, at: float, *, name: str, session: str, grant: str) -> tuple[EntryKind, dict[str, Any]]:
        found = self.current(name, at)
        if found is None or found[0] != grant:
            return EntryKind.REFUSED, {}
        del self.holder[name]
        return EntryKind.OK, {}

    revoke = release

    def close(self, at: float, *, session: str) -> tuple[EntryKind, dict[str, Any]]:
        self.alive_until.pop(session, None)
        return EntryKind.OK, {}


class LockWorld:
    """Some nodes and names, from one seed."""

    def __init__(self, seed: int, *, nodes: int = 3, names: int = 2, calls: int = 40, lossy: float = 0.15) -> None:
        self.random = Random(seed)
        self.store = Store()
        self.entries: list[Entry] = []
        self._lossy = lossy
        self._left = calls
        self._names = [f"lock-{number}" for number in range(names)]
        self._queue: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        for node in range(nodes):
            self._life(f"node-{node}", self.random.random())

    def run(self) -> list[Entry]:
        """Let it happen, and return the entries in the order of time."""
        while self._queue:
            at, _, act = heapq.heappop(self._queue)
            act(at)
        return sorted(self.entries, key=lambda entry: entry.at)

    def _at(self, at: float, act: Callable[[float], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (at, self._number, act))

    def _life(self, node: str, at: float) -> None:
        session = f"{node}/{self.random.getrandbits(32):x}"
        held: dict[str, str] = {}
        self._call(node, "open", at, {"session": session}, lambda kind, then: self._next(node, session, held, then))

    def _next(self, node: str, session: str, held: dict[str, str], at: float) -> None:
        """Decide what a node does after its last call ended at `at`."""
        if self._left <= 0:
            return
        self._left -= 1
        at += self.random.choice((0.0, 0.05, 0.3, 1.5, 5.0)) * self.random.random()
        dice = self.random.random()
        if dice < 0.06:
            ends = {"session": session}
            if dice < 0.03:
                self._call(node, "close", at, ends, lambda kind, then: self._life(node, then))
            else:  # it crashes, and comes back as another
                self._life(node, at + self.random.random())
            return
        name = self.random.choice(self._names)
        grant = held.get(name) or f"{node}:{self._number}"
        what = self.random.choice(("renew", "renew", "release", "revoke")) if name in held else "acquire"
        fields = {"name": name, "session": session, "grant": grant}

        def then(kind: EntryKind, ended_at: float) -> None:
            if what == "acquire" and (
                kind is EntryKind.OK or (kind is EntryKind.UNKNOWN and self.random.random() < 0.5)
            ):
                held[name] = grant
            elif kind is EntryKind.REFUSED or what in ("release", "revoke"):
                held.pop(name, None)
            self._next(node, session, held, ended_at)

        self._call(node, what, at, fields, then)

    def _call(
        self, node: str, what: str, sent_at: float, fields: dict[str, Any], then: Callable[[EntryKind, float], None]
    ) -> None:
        self._number += 1
        call = self._number
        took_s = self.random.choice((0.01, 0.1, 1.0)) * self.random.random()
        self.entries.append(Entry(sent_at, EntryKind.INVOKE, what, node, call=call, **fields))

        def effect(at: float) -> None:
            if what == "open" or self.random.random() >= self._lossy:
                kind, answer = getattr(self.store, what)(at, **fields)
            else:
                kind, answer = EntryKind.UNKNOWN, {}
                self._lose(what, fields, at)
            if kind is not EntryKind.UNKNOWN or self.random.random() < 0.7:
                self.entries.append(Entry(at + took_s / 2, kind, what, node, call=call, **{**fields, **answer}))
            then(kind, at + took_s / 2)

        self._at(sent_at + took_s / 2, effect)

    def _lose(self, what: str, fields: dict[str, Any], at: float) -> None:
        """Lose a reply: its effect came, or comes after a long time in the network, or never."""
        act, fate = getattr(self.store, what), self.random.random()
        if fate < 0.4:
            act(at, **fields)
        elif fate < 0.7:
            self._at(at + self.random.random() * 6, lambda later: act(later, **fields))
