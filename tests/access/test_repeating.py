"""Requests with a key are done once; acts that expect a version are done only if it is still that one."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update

from fencepost import App, every
from fencepost.access import Access, Authentication, Authorized
from fencepost.access.repeating import KeyedAct, KeyedRequest, Told
from fencepost.app.composing import publish
from fencepost.app.records.versions import run_version, schedule_version
from fencepost.core.rights import HumanAct, Scope
from fencepost.errors import (
    AlreadyRequested,
    IdempotencyConflict,
    InvalidName,
    LedgerUnavailable,
    NoSuchJob,
    NoSuchSchedule,
    NotAllowed,
    RequestUnderWay,
    StateChanged,
)
from fencepost.ledger.answers import KEPT_US, find_answer, prune_answers

ONE = KeyedRequest("k1", "POST /api/v1/runs", "hash of the body")


@pytest.fixture
def app(ledger_url: str) -> Iterator[App]:
    made = App(ledger_url)
    made.job(every("1h"), name="settle")(_settle)
    made.job(name="other")(_settle)
    publish(made)
    yield made
    made.close()


def _settle(note: str = "") -> None:
    """Book."""


@pytest.fixture
def token(app: App) -> tuple[str, str]:
    made = Access(app.ledger, Scope.direct("root")).add_api_token("ci", "operator", jobs=["settle"], expires_in="1d")
    return made.id, made.secret


@pytest.fixture
def ask(app: App, token: tuple[str, str]) -> Authorized:
    return Authentication(app.operations).by_api_token(token[1])


def trigger(
    ask: Authorized, request: KeyedRequest = ONE, *, note: str = "", within: Any = "same", again: bool = False
) -> Told:
    def said(made: Any) -> str:
        return json.dumps({"run": made.run_id})

    return ask.once(
        request,
        KeyedAct(
            HumanAct.TRIGGER,
            lambda: ask.trigger("settle", {"note": note}, again=again),
            said,
            said if within == "same" else within,
            job="settle",
            status=201,
        ),
    )


def answers(app: App, ask: Authorized) -> Any:
    return find_answer(app.ledger, ask.principal, "k1")


def age(app: App) -> None:
    table = app.ledger.tables.operating["answer"]
    app.ledger.write(lambda cursor: app.ledger.change(cursor, update(table).values(at=table.c.at - KEPT_US)))


def test_same_request_twice_is_one_act_and_one_answer(app: App, ask: Authorized) -> None:
    first, again = trigger(ask), trigger(ask)
    assert (first.is_repeated, again.is_repeated) == (False, True)
    assert first[:2] == again[:2] == (201, json.dumps({"run": ask.runs()[0].id}))
    assert len(ask.runs()) == 1
    assert len(app.operations.audit.entries(act="run triggered")) == 1


def test_key_of_another_request_or_of_no_form_is_refused_and_nothing_done(ask: Authorized) -> None:
    trigger(ask)
    for other in (ONE._replace(body_hash="another"), ONE._replace(path="POST /api/v1/backfills")):
        with pytest.raises(IdempotencyConflict):
            trigger(ask, other, note="another")
    for key in ("", "x" * 61, "two words", "ü"):
        with pytest.raises(InvalidName):
            trigger(ask, ONE._replace(key=key), note="another")
    assert len(ask.runs()) == 1


def test_cut_off_before_the_commit_leaves_neither_act_nor_answer(app: App, ask: Authorized) -> None:
    def cut_off(_: Any) -> str:
        raise LedgerUnavailable("gone")

    with pytest.raises(LedgerUnavailable):
        trigger(ask, within=cut_off)
    assert (ask.runs(), answers(app, ask)) == ([], None)
    assert not trigger(ask).is_repeated


def test_answer_that_was_lost_after_the_act_is_said_to_be_and_nothing_is_done_again(app: App, ask: Authorized) -> None:
    def lost(_: Any) -> str:
        raise RuntimeError("killed")

    act = KeyedAct(HumanAct.TRIGGER, lambda: ask.trigger("settle"), lost)
    with pytest.raises(RuntimeError):
        ask.once(ONE, act)
    with pytest.raises(RequestUnderWay):
        trigger(ask)
    assert len(ask.runs()) == 1


@pytest.mark.parametrize("again", [False, True], ids=["refused beside another", "allowed beside another"])
def test_several_at_once_are_one_act(ask: Authorized, again: bool) -> None:
    told: list[Told] = []
    start = threading.Barrier(4)

    def send() -> None:
        start.wait(30)
        told.append(trigger(ask, again=again))

    senders = [threading.Thread(target=send) for _ in range(4)]
    for each in senders:
        each.start()
    for each in senders:
        each.join(60)
    assert len(ask.runs()) == 1
    assert {each[:2] for each in told} == {(201, json.dumps({"run": ask.runs()[0].id}))}
    assert sorted(each.is_repeated for each in told) == [False, True, True, True]


def test_repetition_is_checked_against_the_rights_of_now(app: App, ask: Authorized, token: tuple[str, str]) -> None:
    access, principal = Access(app.ledger, Scope.direct("root")), f"token:{token[0]}"
    trigger(ask)
    access.give(principal, "operator", jobs=["other"])
    access.give(principal, "viewer", jobs=["settle"])
    with pytest.raises(NotAllowed):
        trigger(ask)
    access.take(principal, jobs=["settle"])
    with pytest.raises(NoSuchJob):
        trigger(ask)


def test_refused_act_keeps_no_answer_and_can_be_sent_again(app: App, ask: Authorized) -> None:
    under_way = ask.trigger("settle", {"note": ""}).run_id
    with pytest.raises(AlreadyRequested):
        trigger(ask)
    assert answers(app, ask) is None
    ask.cancel(under_way)
    assert not trigger(ask).is_repeated


def test_answer_goes_after_a_day(app: App, ask: Authorized) -> None:
    trigger(ask)
    age(app)
    assert not trigger(ask, note="of the next day").is_repeated
    assert prune_answers(app.ledger, app.ledger, app.ledger.now_us(), 10) == 0
    age(app)
    assert prune_answers(app.ledger, app.ledger, app.ledger.now_us(), 10) == 1
    assert answers(app, ask) is None


def test_act_that_has_nothing_to_do_has_its_answer_kept_too(app: App, ask: Authorized) -> None:
    run = ask.trigger("settle").run_id
    ask.cancel(run)
    told = [ask.once(ONE, KeyedAct(HumanAct.CANCEL, lambda: ask.cancel(run), str, job="settle")) for _ in "ab"]
    assert told == [Told(200, "too late", is_repeated=False), Told(200, "too late", is_repeated=True)]


def test_act_on_a_run_that_has_changed_since_is_refused_inside_its_transaction(app: App, ask: Authorized) -> None:
    run = ask.trigger("settle").run_id
    seen = run_version(ask.run(run))
    table = app.ledger.tables.run
    for values in ({"state": "running", "attempts": 1}, {"state": "dead", "ended_at": 1}):
        change = update(table).where(table.c.id == run).values(**values)
        app.ledger.write(lambda cursor, change=change: app.ledger.change(cursor, change))
        for act in (ask.cancel, ask.retry, ask.release):
            with pytest.raises(StateChanged, match=str(values["state"])):
                act(run, expect=seen)
        seen = run_version(ask.run(run))
    assert len(ask.runs()) == 1
    assert ask.retry(run, expect=seen)


def test_act_on_a_schedule_that_has_changed_since_is_refused(app: App, ask: Authorized) -> None:
    made = ask.schedules.put("extra", "settle", every("1h"), is_new=True)
    with pytest.raises(StateChanged):
        ask.schedules.put("extra", "settle", every("2h"), is_new=True)
    first = schedule_version(made)
    assert schedule_version(ask.schedules.get("extra")) == first
    ask.schedules.put("extra", "settle", every("2h"), expect=first)
    for act in (ask.schedules.pause, ask.schedules.resume, ask.schedules.delete):
        with pytest.raises(StateChanged):
            act("extra", expect=first)
    with pytest.raises(StateChanged):
        ask.schedules.put("extra", "settle", every("3h"), expect=first)
    paused = ask.schedules.pause("extra", expect=schedule_version(ask.schedules.get("extra")))
    assert paused.when == "every 2h"
    ask.schedules.delete("extra", expect=schedule_version(paused))
    with pytest.raises(NoSuchSchedule):
        ask.schedules.put("extra", "settle", every("3h"), expect=schedule_version(paused))
