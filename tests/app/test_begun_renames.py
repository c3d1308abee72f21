"""Renames for good that meet each other, a job that is forgotten, a node that starts, or an end half-way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from fencepost import App, every
from fencepost.app.composing import publish
from fencepost.errors import FencepostError, LedgerRefused, NoSuchJob
from fencepost.ledger import begun_renames as begun
from fencepost.ledger import moving, removing, requests, schedules
from fencepost.ledger.acknowledging import prune_acknowledged
from fencepost.ledger.journal import About
from tests.access.scene import set_run

_ANN, _BOB = About(by="ann"), About(by="bob")
_ON_SQLITE = pytest.mark.parametrize("kind", ["sqlite"])
Between = Callable[[Callable[[], object]], None]


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """A job with a schedule, and three runs that wait."""
    app = _declared(url, "nightly")
    for _ in range(3):
        app.enqueue("nightly")
    yield app
    app.close()


def _declared(url: str, name: str, **words: Any) -> App:
    app = App(url)
    app.command(name, ["true"], every("1h"), **words)
    publish(app)
    return app


def _names(app: App) -> dict[str, set[str]]:
    """The names that jobs, schedules and runs have."""
    return {
        "jobs": {each.name for each in app.operations.jobs()},
        "schedules": {each.job for each in schedules.schedules(app.ledger)},
        "runs": {each.job for each in app.operations.runs()},
    }


def _all(name: str) -> dict[str, set[str]]:
    return {"jobs": {name}, "schedules": {name}, "runs": {name}}


def _said(app: App, **about: Any) -> list[tuple[str, str | None, str]]:
    return [(each.who, each.job, each.outcome) for each in reversed(app.operations.audit.entries(**about))]


@pytest.fixture
def before_the_last(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Return what has something else done right before the last transaction of a rename."""
    move_runs = moving._move_runs

    def between(what: Callable[[], object]) -> None:
        def moved(*given: Any) -> int:
            count = move_runs(*given)
            if given[-1].endswith("/replay"):  # the last of the names
                monkeypatch.setattr(moving, "_move_runs", move_runs)
                what()
            return count

        monkeypatch.setattr(moving, "_move_runs", moved)

    return between


def _cut() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def cut_off(app: App, before_the_last: Between) -> App:
    """The rename to setle has moved the runs, and was cut off before the job."""
    before_the_last(_cut)
    with pytest.raises(KeyboardInterrupt):
        app.operations.rename_job("nightly", "setle", by="ann")
    assert _names(app) == {"jobs": {"nightly"}, "schedules": {"nightly"}, "runs": {"setle"}}
    return app


def test_of_two_who_rename_a_job_at_once_the_second_is_refused_and_nothing_is_left_elsewhere(
    app: App, before_the_last: Between
) -> None:
    errors: list[FencepostError] = []

    def ann() -> None:
        with pytest.raises(LedgerRefused) as refused:
            app.operations.rename_job("nightly", "anns", by="ann")
        errors.append(refused.value)

    before_the_last(ann)
    app.operations.rename_job("nightly", "bobs", by="bob")
    assert "'nightly' is being renamed to 'bobs'" in str(errors)
    assert _names(app) == _all("bobs")
    assert {who for who, _, _ in _said(app)} == {"bob"}


def test_of_two_that_begin_with_a_name_in_common_one_begins(app: App) -> None:
    """As each would that has looked before the other one began."""
    begun.begin_rename(app.ledger, "nightly", "bobs", _BOB)
    others = [("nightly", "anns"), ("bobs", "third"), ("third", "nightly"), ("third", "bobs"), ("bobs", "nightly")]
    for old, new in [*others, ("third", "bobs/part")]:
        with pytest.raises(LedgerRefused, match="fencepost jobs rename nightly bobs"):
            begun.begin_rename(app.ledger, old, new, _ANN)
    begun.begin_rename(app.ledger, "others", "another", _ANN)
    assert [(each.old, each.new, each.by) for each in begun.begun_renames(app.ledger)] == [
        ("nightly", "bobs", "bob"),
        ("others", "another", "ann"),
    ]


def test_of_four_that_begin_at_the_same_moment_one_begins(app: App) -> None:
    barrier = threading.Barrier(4)

    def begin(new: str) -> str | None:
        barrier.wait(20)
        try:
            return begun.begin_rename(app.ledger, "nightly", new, _ANN).new
        except LedgerRefused:
            return None

    with ThreadPoolExecutor(4) as pool:
        one = [new for new in pool.map(begin, ("a", "b", "c", "d")) if new is not None]
    assert [each.new for each in begun.begun_renames(app.ledger)] == one
    assert len(one) == 1


@_ON_SQLITE
def test_rename_that_was_cut_off_is_repeated_and_not_changed(cut_off: App) -> None:
    with pytest.raises(LedgerRefused, match=r"Complete it first: fencepost jobs rename nightly setle \("):
        cut_off.operations.rename_job("nightly", "settle", by="ann")
    with pytest.raises(LedgerRefused, match="fencepost jobs rename nightly setle"):
        cut_off.operations.forget_job("nightly", by="ann")
    assert [(each.new, each.by) for each in begun.begun_renames(cut_off.ledger)] == [("setle", "ann")]
    cut_off.operations.rename_job("nightly", "setle", by="bob")
    assert begun.begun_renames(cut_off.ledger) == []
    cut_off.operations.rename_job("setle", "settle", by="ann")
    assert _names(cut_off) == _all("settle")


def test_same_rename_by_two_at_once_is_done_once(app: App, before_the_last: Between) -> None:
    before_the_last(lambda: app.operations.rename_job("nightly", "settle", by="ann"))
    with pytest.raises(LedgerRefused, match="somebody else has completed the rename of job 'nightly' to 'settle'"):
        app.operations.rename_job("nightly", "settle", by="bob")
    assert _names(app) == _all("settle")
    assert {who for who, _, outcome in _said(app) if outcome == "done"} == {"ann"}


@_ON_SQLITE
def test_run_that_was_claimed_just_before_it_began_has_it_refused_and_taken_back(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, begin = app.enqueue("nightly").run_id, moving.begin_rename

    def claimed(*given: Any, **words: Any) -> Any:
        set_run(app, run_id, state="running", node="x" * 32)
        return begin(*given, **words)

    monkeypatch.setattr(moving, "begin_rename", claimed)
    with pytest.raises(LedgerRefused, match=f"run {run_id} of job 'nightly' has not ended"):
        app.operations.rename_job("nightly", "settle", by="ann")
    assert _said(app, job="nightly") == [("ann", "nightly", "begun"), ("ann", "nightly", "refused")]
    assert (begun.begun_renames(app.ledger), _names(app)) == ([], _all("nightly"))


@_ON_SQLITE
def test_what_somebody_else_has_begun_again_is_not_taken_back(app: App) -> None:
    first = begun.begin_rename(app.ledger, "nightly", "settle", _ANN)
    again = begun.begin_rename(app.ledger, "nightly", "settle", _BOB)
    begun.take_back(app.ledger, first, _ANN)
    begun.take_back(app.ledger, again, _BOB)
    assert [(each.by, each.number) for each in begun.begun_renames(app.ledger)] == [("ann", first.number)]


@_ON_SQLITE
def test_it_outlives_nodes_that_start_and_the_pruning_of_acknowledgements(cut_off: App, url: str) -> None:
    for name in ("nightly", "setle"):
        _declared(url, name).close()
    prune_acknowledged(cut_off.ledger, cut_off.ledger, cut_off.ledger.now_us() + 366 * 86_400_000_000, 100)
    assert [(each.old, each.new) for each in begun.begun_renames(cut_off.ledger)] == [("nightly", "setle")]
    cut_off.operations.rename_job("nightly", "setle", by="ann")
    assert _names(cut_off) == _all("setle")


@_ON_SQLITE
def test_deploy_of_another_name_moves_nothing_until_it_is_done(cut_off: App, url: str) -> None:
    _declared(url, "settle", formerly="nightly").close()
    assert _names(cut_off)["schedules"] == {"nightly"}
    assert _names(cut_off)["runs"] == {"setle"}


@pytest.mark.parametrize("when", ["before its runs are cancelled", "afterwards"])
def test_job_whose_rename_has_begun_is_not_forgotten(app: App, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = removing._in_batches

    def beside(*given: Any, **words: Any) -> int:
        count = 0 if when.startswith("before") else batches(*given, **words)
        begun.begin_rename(app.ledger, "nightly", "settle", _ANN)
        return count + batches(*given, **words)

    monkeypatch.setattr(removing, "_in_batches", beside)
    with pytest.raises(LedgerRefused, match="fencepost jobs rename nightly settle"):
        app.operations.forget_job("nightly", by="bob")
    assert _names(app)["jobs"] == {"nightly"}
    assert {each.state for each in app.operations.runs()} == {"queued" if when.startswith("before") else "cancelled"}
    assert [outcome for _, _, outcome in _said(app, act="job forgotten")] == ["begun"]


@_ON_SQLITE
@pytest.mark.parametrize("act", ["rename", "forget"])
def test_forgetting_what_somebody_else_has_renamed_or_forgotten_is_not_done(
    app: App, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: dict[str, Callable[[], object]] = {
        "rename": partial(app.operations.rename_job, "nightly", "settle", by="ann"),
        "forget": partial(app.operations.forget_job, "nightly", by="ann"),
    }
    for row in schedules.schedules(app.ledger):
        schedules.delete(app.ledger, row.id, by="ann", even_of_code=True)
    batches = removing._in_batches

    def between(*given: Any, **words: Any) -> int:
        monkeypatch.setattr(removing, "_in_batches", batches)
        acts[act]()
        return batches(*given, **words)

    monkeypatch.setattr(removing, "_in_batches", between)
    with pytest.raises(NoSuchJob):
        app.operations.forget_job("nightly", by="bob")
    assert [who for who, _, outcome in _said(app) if outcome == "done"][1:] == ["ann"] * (2 if act == "rename" else 1)
    states = {"queued"} if act == "rename" else {"cancelled"}
    assert {each.state for each in app.operations.runs()} == states


@_ON_SQLITE
def test_forgetting_deletes_no_schedule_that_another_job_has_meanwhile(app: App, monkeypatch: Any) -> None:
    app.schedules.put("nightly:eu", "nightly", every("2h"), by="ann")
    listed = schedules.schedules

    def then_renamed(*given: Any, **words: Any) -> Any:
        found = [row for row in listed(*given, **words) if row.id == "nightly:eu"]
        app.operations.rename_job("nightly", "settle", by="ann")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(removing.schedules, "schedules", then_renamed)
        with pytest.raises(LedgerRefused, match="schedule 'nightly:eu' is of job 'settle' now"):
            app.operations.forget_job("nightly", by="bob")
    assert {row.id for row in schedules.schedules(app.ledger)} == {"nightly:eu", "settle"}


@_ON_SQLITE
def test_runs_under_a_name_that_no_job_has_join_a_job_that_there_is(app: App, url: str) -> None:
    """As they were left by two who renamed at once with an earlier version."""
    stranded = [app.enqueue("nightly").run_id for _ in range(2)]
    app.operations.rename_job("nightly", "anns", by="ann")
    for each, name in zip(stranded, ("bobs", "bobs/part"), strict=True):
        set_run(app, each, job=name, exclusive_key="job:bobs")
    with pytest.raises(NoSuchJob):
        app.operations.rename_job("bob", "anns", by="ann")
    with pytest.raises(NoSuchJob):
        app.operations.rename_job("bobs", "third", by="ann")
    done = app.operations.rename_job("bobs", "anns", by="ann")
    assert (done.runs, done.schedules_deleted) == (2, ())
    assert {each.job for each in app.operations.runs()} == {"anns", "anns/part"}
    assert {app.operations.run(each).exclusive_key for each in stranded} == {"job:anns"}
    assert _names(app)["schedules"] == {"anns"}


@_ON_SQLITE
def test_merge_that_was_cut_off_goes_on_without_being_asked_for_again(
    app: App, url: str, before_the_last: Between
) -> None:
    _declared(url, "greet").close()
    before_the_last(_cut)
    with pytest.raises(KeyboardInterrupt):
        app.operations.rename_job("nightly", "greet", by="ann", into_existing=True)
    done = app.operations.rename_job("nightly", "greet", by="ann")
    assert (_names(app), done.schedules_deleted) == (_all("greet"), ("nightly",))


@_ON_SQLITE
def test_both_entries_of_an_act_are_found_together_under_either_name(cut_off: App) -> None:
    assert _said(cut_off, job="nightly") == [("ann", "nightly", "begun")]
    cut_off.operations.rename_job("nightly", "setle", by="bob")
    audit = cut_off.operations.audit
    number = audit.entries(job="nightly")[-1].n
    for name in ("nightly", "setle"):
        assert _said(cut_off, job=name) == [("ann", name, "begun"), ("bob", name, "begun"), ("bob", name, "done")]
        last, again, first = audit.entries(job=name)
        assert {each.act for each in (last, again, first)} == {"job renamed"}
        assert [each.detail["begun"] for each in (last, again)] == [number, number]
        assert "begun" not in first.detail
    cut_off.operations.forget_job("setle", by="ann")
    done, first = audit.entries(job="setle", act="job forgotten")
    assert (done.outcome, first.outcome) == ("done", "begun")
    assert done.detail["begun"] == first.n
    assert audit.verify().is_intact


@_ON_SQLITE
def test_a_row_that_says_so_is_no_acknowledgement_that_people_see(cut_off: App) -> None:
    table = cut_off.ledger.tables.operating["acknowledged"]
    rows = cut_off.ledger.read(lambda cursor: cut_off.ledger.rows(cursor, select(table.c.what, table.c.id)))
    assert [tuple(row) for row in rows] == [("rename begun", "nightly")]
    assert not [each for each in cut_off.operations.concerns.list() if each.acknowledged]


def test_runs_of_a_job_that_is_being_renamed_are_not_repeated_by_retry_or_reprocess(app: App) -> None:
    dead, waiting, _ = (each.id for each in app.operations.runs())
    set_run(app, dead, state="dead", ended_at=1)
    begun.begin_rename(app.ledger, "nightly", "settle", _ANN)
    for repeat in (partial(app.operations.retry, dead, by="bob"), partial(app.operations.reprocess, by="bob")):
        with pytest.raises(LedgerRefused, match="fencepost jobs rename nightly settle"):
            repeat()
    assert len(app.operations.runs()) == 3
    app.operations.rename_job("nightly", "settle", by="ann")
    [made] = app.operations.reprocess(by="bob")
    assert (app.operations.run(made.run_id).job, app.operations.run(waiting).job) == ("settle", "settle")


@pytest.mark.parametrize("job", [None, "nightly"])
def test_runs_whose_job_is_renamed_after_they_were_found_are_repeated_under_its_new_name_or_not_at_all(
    app: App, job: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`job` is what was asked for: a job that got another name is not that any more."""
    dead = app.operations.runs()[0].id
    set_run(app, dead, state="dead", ended_at=1)
    found = requests.runs

    def then_renamed(*given: Any, **words: Any) -> Any:
        monkeypatch.setattr(requests, "runs", found)
        rows = found(*given, **words)
        app.operations.rename_job("nightly", "settle", by="ann")
        return rows

    monkeypatch.setattr(requests, "runs", then_renamed)
    made = app.operations.reprocess(job=job, by="bob")
    assert [each.old_id for each in made] == ([dead] if job is None else [])
    assert _names(app) == _all("settle")
    assert {each.exclusive_key for each in app.operations.runs()} == {"job:settle"}
