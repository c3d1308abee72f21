"""Trouble is reported once, however many loops meet it and however often, and so is its end."""

from __future__ import annotations

from fencepost.core.events import Event, What
from fencepost.engine.troubles import Troubles
from fencepost.errors import LedgerUnavailable, StoreUnavailable
from fencepost.threaded import ThreadedRuntime


class Heard(list[Event]):
    def whats(self) -> list[tuple[What, str]]:
        return [(event.what, str(event.reason)) for event in self]


def made() -> tuple[Troubles, Heard]:
    heard = Heard()
    return Troubles(ThreadedRuntime(), node=lambda: "n1", emit=heard.append), heard


def test_a_ledger_that_does_not_answer_is_reported_once_by_whoever_finds_out_first() -> None:
    troubles, heard = made()
    for attempt in range(3):
        troubles.met("exchange", LedgerUnavailable(f"no answer within {attempt} s"))
        troubles.met("planner", LedgerUnavailable("connection refused"))
        troubles.met("membership", StoreUnavailable("connection refused"))
    assert heard.whats() == [(What.LEDGER_TROUBLE, "exchange: no answer within 0 s")]
    troubles.over("exchange")
    troubles.over("pruner")
    troubles.over("planner")
    assert len(heard) == 1
    troubles.over("membership")
    assert heard.whats()[1:] == [(What.LEDGER_BACK, "membership")]
    troubles.met("exchange", LedgerUnavailable("again"))
    assert len(heard) == 3


def test_another_trouble_of_a_loop_is_reported_beside_it() -> None:
    troubles, heard = made()
    troubles.met("planner", LedgerUnavailable("connection refused"))
    troubles.met("pruner", KeyError("x"))
    troubles.met("pruner", KeyError("y"))
    troubles.met("planner", ValueError("x"))
    assert [reason for _, reason in heard.whats()] == [
        "planner: connection refused",
        "pruner: KeyError: 'x'",
        "planner: ValueError: x",
    ]
    troubles.over("pruner")
    assert heard.whats()[-1] == (What.LEDGER_BACK, "pruner")
