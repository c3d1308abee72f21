"""Ledgers that are restored from a dump in a life: nothing is done until a person decides, and then nothing twice.

The dump is of the whole file, put back while all nodes of the ledger are stopped; what its database shows of itself
then differs. What was on record in between is forgotten with it: what was done under forgotten tokens is noted here,
so that its absence is not reported, but a repetition of it is.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.ledger.restoring import Pending, accept
from fencepost.proof.evidence import Violation
from fencepost.testing.simulation.connections import SimulatedServer
from fencepost.testing.simulation.lives.settlement import Settlement

NAME = "held until decided"
_HELD_S = 4.0  # nodes that have just started would claim and plan in this time, if they did not wait
_TOKENS = """
SELECT token FROM fencepost_attempt UNION SELECT token FROM sim_gone_attempt
UNION SELECT token FROM fencepost_run WHERE state = 'running'
"""
_DONE = """
SELECT (SELECT count(*) FROM fencepost_run), (SELECT coalesce(sum(attempts), 0) FROM fencepost_run),
  (SELECT max(planned_through) FROM fencepost_schedule)
"""


class Dump(NamedTuple):
    """A copy of a ledger, and when it was made by its clock."""

    file: sqlite3.Connection
    at_us: int


@dataclass(slots=True)
class Restores:
    """What was restored in a life, ledger by ledger."""

    forgotten: list[set[int]]
    stretches: list[list[tuple[int, int]]]
    violations: list[Violation] = field(default_factory=list)


class Restoring:
    """Makes dumps and puts them back."""

    def __init__(self, world: Settlement) -> None:
        self._world = world
        self._dumps: dict[int, Dump] = {}
        self.seen = Restores([set() for _ in world.ledgers], [[] for _ in world.ledgers])

    def has_dump(self, number: int) -> bool:
        """Whether there is something to restore."""
        return number in self._dumps

    def dump(self, number: int) -> None:
        """Copy a ledger."""
        copy = sqlite3.connect(":memory:")
        with self._server(number).file.connected() as connection:
            connection.backup(copy)
        self._dumps[number] = Dump(copy, self._world.now_us())

    def put_back(self, number: int) -> bool:
        """Put the dump in place of the ledger; False if somebody who sleeps has it locked."""
        dump, server = self._dumps.pop(number), self._server(number)
        with closing(dump.file), server.file.connected() as connection:
            before = {row[0] for row in connection.execute(_TOKENS)}
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("COMMIT")
            except sqlite3.OperationalError:
                return False
            dump.file.backup(connection)
            self.seen.forgotten[number] |= before - {row[0] for row in connection.execute(_TOKENS)}
        server.evidence += 1
        self.seen.stretches[number].append((dump.at_us, self._world.now_us()))
        for offer in self._world.offers[number]:
            offer.is_new, offer.is_certain = None, False
        return True

    def accept(self, number: int) -> None:
        """Let nodes meet the restored ledger, look whether they wait, and decide that it is the same."""
        before = self._done(number)
        self._world.hub.wait(_HELD_S)
        if (after := self._done(number)) != before:
            words = f"ledger {number} was restored, nobody had decided, and runs, attempts, planning went on"
            self.seen.violations.append(Violation(NAME, words, f"{before} became {after}"))
        accept(self._world.connections[number], by="ann", reason="restored", runs=Pending.CANCEL)
        until_us = self._world.now_us()
        first, _ = self.seen.stretches[number][-1]
        self.seen.stretches[number][-1] = (first, until_us)

    def _done(self, number: int) -> tuple[int, ...]:
        with self._server(number).file.connected() as connection:
            found: tuple[int, ...] = connection.execute(_DONE).fetchone()
            return found

    def _server(self, number: int) -> SimulatedServer:
        return self._world.ledgers[number]
