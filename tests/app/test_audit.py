"""Whatever a person does is in the audit, in the transaction of the act; what nodes and deploys do is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest
from sqlalchemy import update

from fencepost import App, every
from fencepost.access import Authentication, HostPrincipal
from fencepost.app.auditing import read_anchors
from fencepost.app.composing import publish
from fencepost.core.audit_words import DONE_AS, KNOWN_WORDS, written_as
from fencepost.core.noted import DONE_BY_PEOPLE, Noted
from fencepost.core.rights import Caller
from fencepost.errors import AlreadyRequested, InvalidParameters, LedgerUnavailable, NotAllowed
from fencepost.ledger import auditing
from fencepost.ledger.auditing import acting_as
from fencepost.ledger.journal import About, note


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)

    @app.job(every("1h"))
    def settle(account: int = 1) -> None: ...

    publish(app)
    yield app
    app.close()


def set_run(app: App, run_id: int, **values: Any) -> None:
    run = app.ledger.tables.run
    app.ledger.write(lambda cursor: app.ledger.change(cursor, update(run).where(run.c.id == run_id).values(**values)))


def acts(app: App) -> list[tuple[str, str, str | None, int | None, str | None]]:
    found = reversed(app.operations.audit.entries())
    return [(each.act, each.who, each.job, each.run_id, each.reason) for each in found]


def test_what_people_do_is_in_the_audit_and_a_deploy_is_not(app: App) -> None:
    ops = app.operations
    assert acts(app) == []  # a deploy has made the schedule
    first = ops.trigger("settle", by="ann", reason="asked for").run_id
    set_run(app, first, state="dead", ended_at=1)
    second = ops.retry(first, by="bob")
    ops.cancel(second, by="ann", reason="not yet")
    ops.schedules.pause("settle", by="ann")
    ops.schedules.resume("settle", by="ann")
    ops.schedules.put("settle:7", "settle", every("2h"), params={"account": 7}, by="eve")
    ops.schedules.delete("settle:7", by="eve", reason="gone")
    assert acts(app) == [
        ("run triggered", "ann", "settle", first, "asked for"),
        ("run retried", "bob", "settle", second, None),
        ("run cancelled", "ann", "settle", second, "not yet"),
        ("schedule paused", "ann", "settle", None, None),
        ("schedule resumed", "ann", "settle", None, None),
        ("schedule made", "eve", "settle", None, None),
        ("schedule deleted", "eve", "settle", None, "gone"),
    ]
    assert {each.how for each in ops.audit.entries()} == {"direct"}
    assert ops.audit.verify().is_intact


def test_act_that_was_refused_leaves_no_entry(app: App) -> None:
    app.operations.trigger("settle", by="ann")
    with pytest.raises(AlreadyRequested):
        app.operations.trigger("settle", by="bob")
    assert [each.who for each in app.operations.audit.entries()] == ["ann"]


def test_what_a_program_enqueues_is_not_the_act_of_a_person(app: App) -> None:
    app.operations.enqueue("settle", {"account": 1})
    assert acts(app) == []


def test_many_repeated_at_once_have_an_entry_each(app: App) -> None:
    ids = [app.operations.enqueue("settle", {"account": n}).run_id for n in range(120)]
    for run_id in ids:
        set_run(app, run_id, state="dead", ended_at=1)
    made = app.operations.reprocess(by="ann", limit=200)
    found = app.operations.audit.entries(limit=200)
    assert {each.run_id for each in found} == {each.run_id for each in made}
    assert len(found) == 120
    assert app.operations.audit.verify().entries == 120


def test_entry_says_how_a_person_was_known(app: App) -> None:
    with acting_as(Caller("ann", how="login", address="10.0.0.7", request_id="r1")):
        app.operations.trigger("settle", by="ann")
    [entry] = app.operations.audit.entries()
    assert (entry.who, entry.how, entry.address) == ("ann", "login", "10.0.0.7")


def test_bare_name_finds_each_kind_of_principal_of_that_name(app: App) -> None:
    for name in ("user:ann", "host:ann", "user:anna", "token:ann:x"):
        with acting_as(Caller(name, how="login")):
            app.operations.trigger("settle", by=name, again=True)
    audit = app.operations.audit
    assert {each.who for each in audit.entries(who="ann")} == {"user:ann", "host:ann"}
    assert {each.who for each in audit.entries(who="user:ann")} == {"user:ann"}


def test_the_word_of_an_act_finds_what_was_done_and_what_was_refused(app: App) -> None:
    run_id = app.operations.trigger("settle", by="ann").run_id
    viewer = Authentication(app.operations).by_host(HostPrincipal("bob", {"settle": "viewer"}))
    for refused in (lambda: viewer.cancel(run_id), lambda: viewer.schedules.pause("settle")):
        with pytest.raises(NotAllowed):
            refused()
    app.operations.cancel(run_id, by="ann")
    entries = app.operations.audit.entries
    assert [(each.act, each.outcome) for each in entries(act="cancel")] == [
        ("run cancelled", "done"),
        ("cancel", "refused"),
    ]
    assert [each.outcome for each in entries(act="run cancelled")] == ["done"]
    assert [each.act for each in entries(run_id=run_id)] == ["run cancelled", "cancel", "run triggered"]
    assert [(each.act, each.job, each.schedule) for each in entries(act="pause schedule")] == [
        ("pause schedule", "settle", "settle")
    ]
    with pytest.raises(InvalidParameters, match=r"the audit has no act 'nonsense'; there are: .*retry, "):
        entries(act="nonsense")


def test_every_act_of_people_is_found_by_the_word_of_the_act() -> None:
    assert {*chain.from_iterable(DONE_AS.values())} == DONE_BY_PEOPLE
    assert all(each in KNOWN_WORDS for act in DONE_AS for each in written_as(act))


def test_entries_are_found_by_job_run_person_and_act(app: App) -> None:
    run_id = app.operations.trigger("settle", by="ann").run_id
    app.operations.schedules.pause("settle", by="bob")
    audit = app.operations.audit
    assert [each.act for each in audit.entries(run_id=run_id)] == ["run triggered"]
    assert [each.act for each in audit.entries(who="bob")] == ["schedule paused"]
    assert [(each.who, each.schedule) for each in audit.entries(act="schedule paused")] == [("bob", "settle")]
    assert len(audit.entries(job="settle")) == 2
    assert audit.entries(job="settl") == []
    with pytest.raises(InvalidParameters):
        audit.entries(limit=-1)
    assert audit.entries(run_id=10**30) == []
    assert audit.entries(before_n=10**30) == audit.entries()


def test_anchor_finds_a_chain_that_was_computed_anew(app: App) -> None:
    audit = app.operations.audit
    app.operations.trigger("settle", by="ann")
    [anchor] = read_anchors(["a log line\n" + _line(audit.anchor()), "no anchor"])
    assert audit.verify([anchor]).is_intact
    tables = app.ledger.tables.operating
    forged = {"hash": "f" * 64}

    def forge(cursor: Any) -> None:
        app.ledger.change(cursor, update(tables["audit_head"]).values(**forged))
        app.ledger.change(cursor, update(tables["audit"]).values(**forged))

    app.ledger.write(forge)
    found = audit.verify([anchor])
    assert found.first_break == "edited"
    assert any("anchor" in each for each in found.breaks)


def test_anchor_of_another_ledger_is_refused(app: App) -> None:
    anchor = app.operations.audit.anchor()
    with pytest.raises(InvalidParameters, match="this is ledger"):
        app.operations.audit.verify([type(anchor)("another", anchor.n, anchor.hash, anchor.at)])


def test_entry_put_behind_the_head_by_hand_is_found(app: App) -> None:
    app.operations.trigger("settle", by="ann")
    table = app.ledger.tables.operating["audit"]
    row = {"n": 2, "entry": "{}", "prev": "0" * 64, "hash": "1" * 64, "at": 1, "who": "eve", "act": "x"}
    app.ledger.write(lambda cursor: app.ledger.change(cursor, table.insert().values(row)))
    assert not app.operations.audit.verify().is_intact


@pytest.mark.parametrize("n", [-7, 0, 3, 99])
def test_entry_that_is_outside_of_the_chain_is_found(app: App, n: int) -> None:
    app.operations.trigger("settle", by="ann")
    table = app.ledger.tables.operating["audit"]
    row = {"n": n, "entry": "{}", "prev": "0" * 64, "hash": "1" * 64, "at": 1, "who": "eve", "act": "x"}
    app.ledger.write(lambda cursor: app.ledger.change(cursor, table.insert().values(row)))
    assert not app.operations.audit.verify().is_intact


def test_pruning_while_others_verify_breaks_nothing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        app.operations.trigger("settle", by="ann", again=True)
    audit, chain = app.operations.audit, auditing.chain

    def pruned_first(ledger: Any, **words: int) -> Any:
        monkeypatch.setattr(auditing, "chain", chain)
        audit.prune(before=audit.anchor().at, by="eve")
        return chain(ledger, **words)

    monkeypatch.setattr(auditing, "chain", pruned_first)
    assert audit.verify().is_intact


@pytest.mark.parametrize("by", ["", "  "])
def test_nobody_acts_without_a_name(app: App, by: str) -> None:
    for act in (app.operations.schedules.pause, app.operations.schedules.resume):
        with pytest.raises(InvalidParameters, match="say who"):
            act("settle", by=by)
    with pytest.raises(InvalidParameters):
        app.operations.audit.prune(before="2020-01-01T00:00Z", by=by)


@pytest.mark.parametrize(
    ("act", "last"),
    [
        ("job renamed", "moving._moved"),
        ("job forgotten", "removing._remove"),
        ("ledger accepted", "restoring._accepted"),
        ("ledger copied", "restoring._copied"),
    ],
)
def test_act_of_several_transactions_that_is_cut_off_has_an_entry(
    app: App, act: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = app.operations.enqueue("settle", {}).run_id
    set_run(app, run_id, state="running" if act.startswith("ledger") else "waiting", node="gone", waits_for="person")
    before = app.operations.run(run_id)

    def away(*_: object) -> None:
        raise LedgerUnavailable("cut off")

    calls: dict[str, Callable[[], object]] = {
        "job renamed": lambda: app.operations.rename_job("settle", "account", by="ann", reason="clearer"),
        "job forgotten": lambda: app.operations.forget_job("settle", by="ann", reason="gone"),
        "ledger accepted": lambda: app.operations.restored.accept(by="ann", reason="the disk", unnoticed=True),
        "ledger copied": lambda: app.operations.restored.as_copy(by="ann", reason="a test", unnoticed=True),
    }
    monkeypatch.setattr(f"fencepost.ledger.{last}", away)
    with pytest.raises(LedgerUnavailable):
        calls[act]()
    assert app.operations.run(run_id) != before
    first = app.operations.audit.entries()[-1]
    assert (first.act, first.who, first.outcome) == (act, "ann", "begun")
    monkeypatch.undo()
    calls[act]()
    last = app.operations.audit.entries()[0]
    assert (last.act, last.outcome) == (act, "done")


def test_reason_that_only_the_new_name_wants_is_asked_for_before_anything_is_renamed(app: App) -> None:
    run_id = app.operations.enqueue("settle", {}).run_id
    newer = App(app.ledger.url.text)
    newer.command("account", ["true"], every("1h"), formerly="settle", reason="always")
    publish(newer)
    set_run(app, run_id, job="settle")
    with pytest.raises(InvalidParameters, match="wants a reason"):
        newer.operations.rename_job("settle", "account", by="ann")
    assert app.operations.run(run_id).job == "settle"
    assert acts(app) == []
    newer.operations.rename_job("settle", "account", by="ann", reason="clearer")
    assert app.operations.run(run_id).job == "account"
    newer.close()


def test_note_outside_of_a_transaction_has_its_entry_at_once(app: App) -> None:
    connection = app.ledger.connect("test")
    with connection.autocommit() as cursor:
        note(app.ledger, cursor, Noted.RUN_TRIGGERED, About(by="ann"))
    connection.rest()
    assert [each.who for each in app.operations.audit.entries()] == ["ann"]


def test_every_word_of_the_journal_that_names_an_act_of_people_is_audited() -> None:
    by_nodes = {
        Noted.NODE_DIED,
        Noted.RUN_LOST,
        Noted.RUN_REFUSED,
        Noted.RUN_RESUMED,
        Noted.SLA_MISSED,
        Noted.REFUSED_WRITE,
        Noted.UNKEYED_WRITE,
        Noted.JOB_WITHOUT_NODE,
        Noted.LEDGER_HELD,
        Noted.LEDGER_ADVANCED,
        Noted.CLOCK_LEAPT,
    }
    assert set(Noted) - by_nodes == DONE_BY_PEOPLE


def _line(anchor: Any) -> str:
    return f"2026-11-18 audit {json.dumps(anchor.to_json())}"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_entry_whose_time_was_edited_to_no_date_is_shown_as_damaged_among_the_others(app: App) -> None:
    for account in (1, 2):
        app.operations.trigger("settle", {"account": account}, by="ann")
    table = app.ledger.tables.name("audit")
    app.ledger.write(lambda cursor: cursor.execute(f"UPDATE {table} SET at = 9e999 WHERE n = 1"))
    newest, oldest = app.operations.audit.entries()
    assert (newest.damaged, oldest.damaged, oldest.at) == (False, True, None)
