"""The order of calls to locks: what is right is explained, what is wrong is not, and a brute-force judge agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from time import process_time

import pytest

from fencepost.proof.calls import Call, calls
from fencepost.proof.checkers import lock_register
from fencepost.proof.evidence import Evidence, Timing, Violation
from fencepost.proof.history import Entry, EntryKind, History
from tests.proof.lock_world import TTL_S, LockWorld

OK, REFUSED, UNKNOWN = EntryKind.OK, EntryKind.REFUSED, EntryKind.UNKNOWN
Held = tuple[str, int, float]


def judged(entries: Sequence[Entry], **notes: object) -> list[Violation]:
    durable = bool(notes.pop("durable", True))
    timing = Timing(TTL_S, 1.0, 0.0, 100.0)
    notes = {"store_slack_s": 0.0, **notes}
    return list(lock_register.check(Evidence(History(entries), timing, notes=notes, tokens_are_durable=durable)))


class Told:
    """A history told call by call."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def __call__(
        self, what: str, node: str, sent: float, ended: float, kind: EntryKind | None = OK, **more: object
    ) -> Told:
        fields = {"name": "x", "session": node, "grant": f"g-{node}", **more}
        detail = fields.pop("detail", {})
        call = len(self.entries) + 1
        self.entries.append(Entry(sent, EntryKind.INVOKE, what, node, call=call, **fields | {"token": None}))
        if kind is not None:
            self.entries.append(Entry(ended, kind, what, node, call=call, detail=detail, **fields))
        return self

    def judged(self, **notes: object) -> list[Violation]:
        return judged(sorted(self.entries, key=lambda entry: entry.at), **notes)


def opened() -> Told:
    return Told()("open", "a", 0.0, 0.1, name="")("open", "b", 0.0, 0.1, name="")


# -- by hand: what must be seen


def test_two_holders_within_a_ttl_are_seen() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("acquire", "b", 2.0, 2.1, token=2)
    [found] = told.judged()
    assert found.checker == "lock register"
    assert "'x'" in found.what
    assert "sent at 2.000 s" in found.what


def test_a_token_that_went_down_is_seen() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=9)("release", "a", 2.0, 2.1)("acquire", "b", 3.0, 3.1, token=8)
    assert told.judged()
    assert not told.judged(durable=False)


def test_a_renewal_after_another_was_let_in_is_seen() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("acquire", "b", 6.0, 6.1, token=2)
    assert not told.judged()
    assert told("renew", "a", 7.0, 7.1).judged()


def test_a_release_that_twice_was_ones_own_is_seen() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("release", "a", 2.0, 2.1)
    assert not told.judged()
    assert told("release", "a", 3.0, 3.1).judged()


def test_a_refusal_while_nobody_holds_it_is_seen() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("release", "a", 2.0, 2.1)
    assert told("acquire", "b", 3.0, 3.1, REFUSED, detail={"why": "held"}).judged()


def test_a_holder_who_is_told_it_lost_before_its_ttl_is_seen() -> None:
    assert opened()("acquire", "a", 1.0, 1.1, token=1)("renew", "a", 2.0, 2.1, REFUSED).judged()


def test_a_revocation_that_was_believed_and_did_nothing_is_seen() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("revoke", "op", 2.0, 2.1, grant="g-a", session="")
    assert not told("acquire", "b", 3.0, 3.1, token=2).judged()
    assert told("renew", "a", 4.0, 4.1).judged()


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("renew", "a", 2.0, 2.5)
    assert told("acquire", "b", 5.8, 5.9, token=2).judged()


# -- by hand: what must be believed


def test_an_expiry_is_believed_after_a_ttl_without_renewal() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("renew", "a", 2.0, 2.5)("acquire", "b", 6.6, 6.7, token=2)
    assert not told.judged()


def test_a_lost_reply_may_have_taken_the_lock_at_any_later_moment() -> None:
    told = opened()("acquire", "a", 1.0, 1.5, UNKNOWN)("acquire", "b", 2.0, 2.1, token=2)
    told("release", "b", 3.0, 3.1)("acquire", "c", 3.2, 3.3, REFUSED, detail={"why": "held", "held_by": "g-a"})
    assert not told.judged()


def test_a_lost_release_may_have_freed_it() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("release", "a", 2.0, 2.1, None)
    assert not told("acquire", "b", 2.2, 2.3, token=2).judged()
    assert told("acquire", "c", 2.4, 2.5, token=3).judged()


def test_asking_again_with_the_same_grant_returns_the_same() -> None:
    told = opened()("acquire", "a", 1.0, 1.5, UNKNOWN)("acquire", "a", 2.0, 2.1, token=5)
    assert not told("acquire", "a", 2.2, 2.3, token=5).judged()
    assert told("acquire", "a", 2.4, 2.5, token=6).judged()


def test_a_store_that_forgot_may_have_freed_it() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("acquire", "b", 2.0, 2.1, token=2)
    assert told.judged()
    told.entries.append(Entry(1.5, EntryKind.NOTE, "fault", "store", detail={"kind": "forget"}))
    assert not told.judged()


def test_a_store_that_forgot_may_have_forgotten_that_a_session_was_renewed() -> None:
    told = opened()("renew", "a", 3.0, 3.1, name="", grant="")("acquire", "a", 4.0, 4.1, token=1)
    told("renew", "a", 4.2, 4.3, REFUSED, name="", grant="")
    assert told.judged()
    told.entries.append(Entry(3.5, EntryKind.NOTE, "fault", "store", detail={"kind": "forget"}))
    assert not told.judged()


def test_a_session_renewed_as_a_whole_is_renewed_for_each_name() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("renew", "a", 2.0, 2.1, name="", grant="")
    assert told("acquire", "b", 5.5, 5.6, token=2).judged()
    late = opened()("acquire", "a", 1.0, 1.1, token=1)("renew", "a", 2.0, 2.1, name="", grant="")
    assert not late("acquire", "b", 6.1, 6.2, token=2).judged()


def test_an_advisory_lock_may_end_with_its_process() -> None:
    told = opened()("acquire", "a", 1.0, 1.1, token=1)("acquire", "b", 2.0, 2.1, token=2)
    told.entries.append(Entry(1.5, EntryKind.NOTE, "fault", "a", detail={"kind": "kill"}))
    assert told.judged()
    assert not told.judged(ends_with_connection=True)


# -- many, from seeds


@pytest.mark.parametrize("lossy", [0.0, 0.15, 0.5])
def test_what_a_right_store_answered_is_always_explained(lossy: float) -> None:
    for seed in range(150):
        entries = LockWorld(seed, lossy=lossy).run()
        assert judged(entries) == [], seed


def test_hundreds_of_calls_to_one_name_are_judged_quickly() -> None:
    began = process_time()
    for seed in range(3):
        entries = LockWorld(seed, nodes=8, names=1, calls=500, lossy=0.2).run()
        assert judged(entries) == [], seed
    assert process_time() - began < 15


def test_what_is_broken_in_hundreds_of_calls_is_found_quickly() -> None:
    entries = LockWorld(5, nodes=8, names=1, calls=400, lossy=0.2).run()
    granted = [number for number, each in enumerate(entries) if each.what == "acquire" and each.kind is OK]
    last = granted[-1]
    entries[last] = replace(entries[last], token=1)
    began = process_time()
    assert judged(entries)
    assert process_time() - began < 20


# -- a judge without cleverness


def explained_by_force(own: list[Call], *, ttl_s: float, until: int) -> bool:
    """Walk through time by whole seconds; in each, any open call may take effect, or an expired holder may go."""
    told = {call.grant: call.token for call in own if call.what == "acquire" and call.is_ok}
    begin = (frozenset(range(len(own))), "", 0, 0.0)  # open calls, grant, token, expires at
    states = {begin}
    for at in range(until):
        found = set(states)
        while states:
            todo = set()
            for left, grant, token, expires_at in states:
                if grant and at >= expires_at:
                    todo.add((left, "", token, 0.0))
                for number in left:
                    call = own[number]
                    if call.sent_at <= at <= call.ended_at:
                        lives_until = max(at, _contact(own, call) + ttl_s)
                        for after in _applied(call, (grant, token, expires_at), at + ttl_s, lives_until, told):
                            todo.add((left - {number}, *after))
            states = todo - found
            found |= todo
        states = {each for each in found if all(own[number].ended_at > at for number in each[0])}
    return any(all(own[number].is_unknown for number in left) for left, *_ in states)


def _contact(own: list[Call], call: Call) -> float:
    """When the caller's session was last renewed for certain before this call."""
    renewals = (each for each in own if each.what == "renew" and each.is_ok and each.session == call.session)
    return max((each.sent_at for each in renewals if each.ended_at <= call.sent_at), default=-99.0)


def _applied(call: Call, held: Held, renewed_until: float, lives_until: float, told: dict[str, int]) -> list[Held]:  # noqa: PLR0911
    """Return what the register may be after the call has taken effect; empty: it cannot have answered so."""
    grant, token, expires_at = held
    is_mine = grant == call.grant
    match call.what, call.kind:
        case "acquire", EntryKind.OK:
            if is_mine:
                return [held] if token == call.token else []
            return [(call.grant, call.token, lives_until)] if not grant and call.token > token else []
        case "acquire", EntryKind.UNKNOWN:
            gets = told.get(call.grant, token + 1)
            return [(call.grant, gets, lives_until)] if not grant and gets > token else []
        case "acquire", EntryKind.REFUSED:
            return [held] if grant and not is_mine else []
        case "renew", EntryKind.OK:
            return [(grant, token, max(expires_at, renewed_until))] if is_mine else []
        case "release", EntryKind.OK | EntryKind.UNKNOWN:
            return [("", token, 0.0)] if is_mine else []
        case _, EntryKind.REFUSED:
            return [] if is_mine else [held]
    return []


def small_history(random: Random) -> list[Entry]:
    """Up to six calls of two nodes to one name, with answers thrown by dice: about half of them can be explained."""
    entries: list[Entry] = []
    clock = {"a": 0, "b": 0}
    token = 0
    grants = {"a": "g-a", "b": "g-b"}
    for call in range(1, random.randint(3, 6) + 1):
        node = random.choice("ab")
        sent = clock[node] + random.randint(0, 3)
        ended = sent + random.randint(0, 3)
        clock[node] = ended
        what = random.choice(("acquire", "acquire", "renew", "release"))
        kind = random.choice((OK, OK, OK, REFUSED, REFUSED, UNKNOWN))
        fields = {"name": "x", "session": node, "grant": grants[node]}
        entries.append(Entry(sent, EntryKind.INVOKE, what, node, call=call, **fields))
        answer = {}
        if what == "acquire" and kind is OK:
            # Tokens leave room for those that nobody was told of.
            token += random.choice((0, 10, 10, 10, 10))
            answer = {"token": token or 10}
        if what == "acquire" and kind is REFUSED:
            answer = {"detail": {"why": "held"}}
        if what == "release" and random.random() < 0.5:
            grants[node] = f"g-{node}{call}"
        entries.append(Entry(ended, kind, what, node, call=call, **fields, **answer))
    return sorted(entries, key=lambda entry: (entry.at, entry.kind is not EntryKind.INVOKE))


def test_the_search_agrees_with_a_judge_that_tries_everything() -> None:
    ttl_s, verdicts = 3.0, {True: 0, False: 0}
    for seed in range(3000):
        entries = small_history(Random(seed))
        history = History(entries)
        timing = Timing(ttl_s, 1.0, 0.0, 100.0)
        found = list(lock_register.check(Evidence(history, timing, notes={"store_slack_s": 0.0})))
        own = calls(history)
        expected = explained_by_force(own, ttl_s=ttl_s, until=40)
        assert expected == (not found), (seed, found, "\n".join(map(str, own)))
        verdicts[expected] += 1
    assert min(verdicts.values()) > 300, verdicts
