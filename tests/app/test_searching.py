"""Declared search keys over all history, and searches without an index: bounded, exact, and honest about how far."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy

from fencepost import App, every
from fencepost.app import searching
from fencepost.app.composing import publish
from fencepost.app.records import RunsFound
from fencepost.app.searching import MOST_READ, find_runs, is_indexed
from fencepost.core.rights import Caller, Role, Scope
from fencepost.core.search_keys import has_values, search_keys, search_text, spellings
from fencepost.engine.ticks import Ticks
from fencepost.errors import InvalidParameters, InvalidPolicy, LedgerUnavailable
from fencepost.ledger.history import RunFilter
from fencepost.ledger.planning import plan
from fencepost.ledger.pruning import Retention, prune

NOW = datetime(2026, 11, 18, 3, tzinfo=UTC)


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)

    @app.job(every("1h"), params={"customer": 7}, search=["customer"])
    def settle(customer: int, note: str = "") -> None: ...

    @app.job(search=["customer", "day"])
    def report(customer: Any, day: str = "x") -> None: ...

    @app.job
    def plain(customer: int = 0) -> None: ...

    publish(app)
    yield app
    app.close()


def set_run(app: App, run_id: int, **values: Any) -> None:
    run = app.ledger.tables.run
    app.ledger.write(lambda cursor: app.ledger.change(cursor, run.update().where(run.c.id == run_id).values(**values)))


def keys(app: App) -> list[tuple[str, str, int]]:
    table = app.ledger.tables.operating["run_search"]
    query = sqlalchemy.select(table).order_by(table.c.run_id, table.c.name)
    return app.ledger.read(lambda cursor: [tuple(row) for row in app.ledger.rows(cursor, query)])


def found(app: App, **wanted: Any) -> list[int]:
    return [run.id for run in app.operations.find_runs(**wanted).runs]


def plan_ticks(app: App) -> None:
    table = app.ledger.tables.schedule
    now_us = app.ledger.now_us()
    late = (
        table.update().where(table.c.id == "settle").values(next_due_at=now_us, planned_through=now_us - 3600_000_000)
    )
    app.ledger.write(lambda cursor: app.ledger.change(cursor, late))
    ticks = Ticks(horizon_us=2_000_000, emit=lambda _: None, is_believed=lambda _: True)
    connection = app.ledger.connect("plan")
    try:
        assert plan(connection, horizon_us=2_000_000, limit=10, decide=ticks.plan).runs > 0
    finally:
        connection.rest()


def test_every_way_to_a_run_writes_its_keys_and_they_go_with_it(app: App) -> None:
    ops = app.operations
    plan_ticks(app)
    [planned] = [run.id for run in ops.runs(job="settle")]
    engine = sqlalchemy.create_engine(app.ledger.url.sqlalchemy())
    with engine.connect() as connection:
        lost = app.enqueue("report", params={"customer": 7}, tx=connection).run_id
        connection.rollback()
        kept = app.enqueue("report", params={"customer": 7}, tx=connection).run_id
        connection.commit()
    engine.dispose()
    asked = app.enqueue("settle", params={"customer": 7, "note": "é"}, key="k").run_id
    assert app.enqueue("settle", params={"customer": 7, "note": "é"}, key="k") == (asked, False)
    by_hand = ops.trigger("report", {"customer": "7", "day": "2026-01-01"}, by="ann").run_id
    ops.backfill("settle", "2020-01-01T00:00Z", "2020-01-01T01:00Z", by="ann")
    filled = [run.id for run in ops.runs(job="settle", after_id=by_hand)]
    set_run(app, asked, state="dead", ended_at=1)
    again = ops.retry(asked, by="ann")
    ops.cancel(again, by="ann")
    [repeated] = [each.run_id for each in ops.reprocess(by="ann")]
    app.enqueue("plain", params={"customer": 7})
    ours = [planned, kept, asked, by_hand, *filled, again, repeated]
    assert len(filled) == 2
    assert [each for each in keys(app) if each[0] == "customer"] == [("customer", "7", each) for each in ours]
    assert ("day", "2026-01-01", by_hand) in keys(app)
    assert found(app, params={"customer": "7"}) == ours[::-1]
    assert lost not in ours or lost == kept
    set_run(app, asked, job="renamed-since")
    assert asked in found(app, params={"customer": "7"})
    for each in ours:
        set_run(app, each, state="succeeded", ended_at=1, created_at=1)
    while prune(app.ledger, None, Retention.of(succeeded="1s", requests="1s")):
        pass
    assert keys(app) == []


def test_jobs_without_search_cost_no_statement(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a statement for a run without keys")

    monkeypatch.setattr("fencepost.ledger.recording.index_recorded", refuse)
    monkeypatch.setattr("fencepost.ledger.planning.index_planned", refuse)
    app.enqueue("plain", params={"customer": 7})
    with pytest.raises(AssertionError):
        app.enqueue("report", params={"customer": 7})
    with pytest.raises(AssertionError):
        plan_ticks(app)


VALUES = ["x" * 120, "x" * 121, "a ", "a", "é", "10% _of\\it", "line\nbreak", "\x00\ud800", '"quoted"', 7, True]


def test_exact_texts_are_found_and_no_others(app: App) -> None:
    """Of a job that declares the parameter by the index, and of one that does not run by run."""
    app.job(name="loose")(lambda customer: None)
    publish(app)
    for job in ("report", "loose"):
        made = {search_text(value): app.enqueue(job, params={"customer": value}).run_id for value in VALUES}
        for text, run_id in made.items():
            assert found(app, job=job, params={"customer": text}) == [run_id], text
        for text in ("y" * 121, "X" * 120, "A", "%"):
            assert found(app, job=job, params={"customer": text}) == [], text


def test_scope_is_applied_to_what_keys_lead_to(app: App) -> None:
    mine = app.enqueue("settle", params={"customer": 7}).run_id
    for _ in range(3):
        app.enqueue("report", params={"customer": 7})
    ops = app.operations.within(Scope(Caller("ann"), {"settle": Role.VIEWER}))
    assert [run.id for run in ops.find_runs(params={"customer": "7"}).runs] == [mine]
    assert ops.find_runs(params={"customer": "7"}, job="report").runs == []
    assert app.operations.within(Scope(Caller("bob"), {})).find_runs(params={"customer": "7"}).runs == []
    page = ops.find_runs(params={"customer": "7"}, limit=1)
    assert (page.runs[0].id, page.next_before) == (mine, None)


def test_runs_of_other_jobs_tell_nothing_through_a_key(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither that there are such runs, nor how many, nor which: the answer is that for a customer nobody has."""
    monkeypatch.setattr(searching, "MOST_READ", 2)
    ops = app.operations.within(Scope(Caller("ann"), {"settle": Role.VIEWER}))
    for _ in range(5):
        app.enqueue("report", params={"customer": 7})
    nothing = ops.find_runs(params={"customer": "8"}, limit=1)
    assert ops.find_runs(params={"customer": "7"}, limit=1) == nothing == RunsFound([])
    mine = app.enqueue("settle", params={"customer": 7}).run_id
    for _ in range(5):
        app.enqueue("report", params={"customer": 7})
    page = ops.find_runs(params={"customer": "7"}, limit=1)
    assert ([run.id for run in page.runs], page.next_before, page.looked_back_to) == ([mine], None, None)


def test_retry_with_other_parameters_is_found_by_those(app: App) -> None:
    ops = app.operations
    first = app.enqueue("settle", params={"customer": 7}).run_id
    set_run(app, first, state="dead", ended_at=1)
    other = ops.retry(first, params={"customer": 8}, by="ann")
    set_run(app, other, state="dead", ended_at=1)
    again = ops.retry(other, by="ann")
    assert found(app, params={"customer": "8"}) == [again, other]
    assert found(app, params={"customer": "7"}) == [first]


def test_keys_are_read_page_by_page_together_with_other_filters(app: App) -> None:
    ids = [app.enqueue("report", params={"customer": 7, "day": str(n % 2)}).run_id for n in range(8)]
    set_run(app, ids[0], state="dead")
    seen, before = [], None
    while True:
        page = app.operations.find_runs(params={"customer": "7"}, before_id=before, limit=3)
        seen += [run.id for run in page.runs]
        if (before := page.next_before) is None:
            break
    assert seen == ids[::-1]
    assert found(app, params={"customer": "7", "day": "1"}) == ids[::-2]
    assert found(app, params={"customer": "7"}, states=["dead"], limit=1) == [ids[0]]
    assert found(app, params={"customer": "7"}, ids=ids[2:4]) == [ids[3], ids[2]]
    assert found(app, params={"customer": "7"}, after_id=ids[4]) == ids[5:]


def test_other_parameters_are_looked_for_run_by_run(app: App) -> None:
    ids = [app.enqueue("settle", params={"customer": n, "note": f"n{n % 2}"}).run_id for n in range(4)]
    assert found(app, params={"note": "n1"}) == [ids[3], ids[1]]
    assert found(app, params={"note": "n1"}, after_id=ids[1]) == [ids[3]]
    assert found(app, params={"note": "n1", "customer": "3"}) == [ids[3]]
    assert found(app, params={"note": "n"}) == []


@pytest.mark.parametrize("search", [["nobody"], ["customer", "customer"], "no body", [7], ["c"] * 11, ["x" * 61]])
def test_search_that_is_no_parameter_is_refused_when_it_is_declared(search: Any) -> None:
    def settle(customer: int) -> None: ...

    with pytest.raises(InvalidPolicy, match="search"):
        App("sqlite:///unused.db").job(search=search)(settle)


def test_texts_of_values() -> None:
    params = {"a": 7, "b": True, "c": None, "d": "x", "e": 1.5, "f": [1, {"g": 2}]}
    assert [text for _, text in search_keys(params, params)] == ["7", "true", "null", "x", "1.5", '[1,{"g":2}]']
    assert search_keys(["a", "z"], params) == (("a", "7"),)
    stored = json.dumps(params, separators=(",", ":"), sort_keys=True)
    for name, text in search_keys(params, params):
        assert has_values(stored, {name: text})
        assert any(spelling in stored for spelling in spellings(name, text))
    assert not has_values("{damaged", {"a": "7"})
    assert not has_values("[7]", {"a": "7"})


# -- without an index


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [({}, True), ({"job": "a"}, True), ({"states": ["running"], "node": "x"}, True), ({"states": ["dead"]}, True),
     ({"states": ["succeeded"]}, False), ({"node": "x"}, False), ({"job": "a", "states": ["dead"]}, False),
     ({"requested_by": "ann", "since_us": 1}, False), ({"retry_of": 7}, True), ({"params": {"a": "1"}}, False),
     ({"ids": [7], "node": "x"}, True)],
)  # fmt: skip
def test_it_is_known_what_an_index_answers(wanted: dict[str, Any], expected: bool) -> None:
    assert is_indexed(RunFilter(**wanted)) is expected


class History:
    """Many runs, of which every so many has what is looked for; counts what is read."""

    def __init__(self, number: int, every: int, fails_after: int = 10**9) -> None:
        self.number, self.every, self.fails_after, self.reads = number, every, fails_after, []

    def __call__(self, wanted, *, before_id=None, after_id=None, limit):
        low, high = (after_id or 0) + 1, min(self.number + 1, before_id or self.number + 1)
        if not wanted.node:
            ids = range(low, high)[:limit] if after_id is not None else range(low, high)[::-1][:limit]
        else:
            if len(self.reads) >= self.fails_after:
                raise LedgerUnavailable("slow")
            self.reads.append(high - low)
            ids = [each for each in range(low, high) if each % self.every == 0][:limit]
        return [SimpleNamespace(id=each, created_at=NOW) for each in ids]

    def find(self, clock: Callable[[], float] = lambda: 0.0, **edge: int | None) -> RunsFound:
        return find_runs(self, RunFilter(node="x"), size=50, clock=clock, **edge)


@pytest.mark.parametrize("every", [7, 499, 500, 501, 60_000])
def test_search_without_an_index_finds_all_in_order_page_by_page_both_ways(every: int) -> None:
    history = History(130_000, every)
    matching = [each for each in range(1, 130_001) if each % every == 0]
    seen, before = [], None
    while (page := history.find(before_id=before)).next_before is not None:
        seen += [each.id for each in page.runs]
        before = page.next_before
    assert [*seen, *(each.id for each in page.runs)] == matching[::-1]
    seen, after = [], 0
    while (page := history.find(after_id=after)).next_after is not None:
        seen += [each.id for each in page.runs]
        after = page.next_after
    assert [*seen, *(each.id for each in page.runs)] == matching


class Restored(History):
    """The same, with a million ids left out in the middle, as by a ledger that was restored."""

    def __call__(self, wanted, *, before_id=None, after_id=None, limit):
        def inner(edge: int | None) -> int | None:
            return edge if edge is None or edge <= 300 else max(300, edge - 1_000_000)

        before = None if before_id is None else (before_id if before_id <= 300 else max(301, before_id - 1_000_000))
        rows = super().__call__(wanted, before_id=before, after_id=inner(after_id), limit=limit)
        return [SimpleNamespace(id=each.id + 1_000_000 * (each.id > 300), created_at=NOW) for each in rows]


def test_ids_that_were_left_out_are_passed_over_both_ways() -> None:
    history = Restored(600, 10)
    matching = [each + 1_000_000 * (each > 300) for each in range(10, 601, 10)]
    first = history.find()
    second = history.find(before_id=first.next_before)
    assert [each.id for each in (*first.runs, *second.runs)] == matching[::-1]
    assert second.next_before is None
    third = history.find(after_id=0)
    fourth = history.find(after_id=third.next_after)
    assert [each.id for each in (*third.runs, *fourth.runs)] == matching
    assert fourth.next_after is None
    assert len(history.reads) < 20


def test_search_without_an_index_reads_little_if_the_page_is_full_soon() -> None:
    history = History(130_000, 1)
    assert [each.id for each in history.find().runs] == list(range(130_000, 129_950, -1))
    assert sum(history.reads) <= 1000


def test_search_without_an_index_reads_no_more_than_its_bound_and_says_how_far_it_came() -> None:
    found = History(1_000_000, 10**9).find()
    assert found.runs == []
    assert MOST_READ <= found.looked_through <= MOST_READ + 8_000
    assert found.looked_back_to == found.next_before == 1_000_001 - found.looked_through
    assert found.looked_back_at == NOW


def test_search_without_an_index_ends_when_its_time_is_up() -> None:
    times = iter(range(1000))
    history = History(1_000_000, 10**9)
    found = history.find(clock=lambda: float(next(times)))
    assert len(history.reads) <= 1
    assert found.looked_back_to is not None


def test_ledger_that_becomes_slow_ends_a_search_with_what_it_has() -> None:
    found = History(100_000, 1_000, fails_after=2).find()
    assert [each.id for each in found.runs] == [100_000, 99_000]
    assert found.next_before == 100_001 - 1_500
    with pytest.raises(LedgerUnavailable):
        History(100_000, 1_000, fails_after=0).find()


def test_key_of_many_other_runs_is_read_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody looks for a customer's runs of one job, and other jobs have very many."""
    monkeypatch.setattr(searching, "MOST_READ", 5_000)
    asked: list[int] = []

    def keyed(before_id: int | None, limit: int) -> list[int]:
        asked.append(limit)
        top = before_id or 1_000_001
        return list(range(top - 1, max(top - 1 - limit, 0), -1))

    def ask(wanted: RunFilter, *, before_id: Any = None, after_id: Any = None, limit: int) -> list[Any]:
        return [] if wanted.ids is not None else [SimpleNamespace(id=1, created_at=NOW)]

    wanted = RunFilter(job="mine", params={"customer": "7"})
    found = find_runs(ask, wanted, size=50, clock=lambda: 0.0, keyed=keyed)
    assert found.runs == []
    assert 5_000 <= found.looked_through == sum(asked) < 6_000
    assert found.next_before == 1_000_001 - sum(asked)


@pytest.mark.parametrize("params", [{"no name": "7"}, {"customer": "x" * 1001}, {f"p{n}": "" for n in range(11)}])
def test_parameters_that_cannot_be_looked_for_are_refused(params: dict[str, str]) -> None:
    with pytest.raises(InvalidParameters):
        searching.checked_params(params)
