"""Asking for runs, on each database."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy

from fencepost import App, every
from fencepost.app.declaring import JobHandle, RequestOptions
from fencepost.app.operations import Operations
from fencepost.app.records import RunRecord
from fencepost.engine.invoke import invoke
from fencepost.errors import DuplicateRequest, InvalidDuration, InvalidParameters, InvalidTick, NoSuchJob
from tests.app.surroundings import CLAIM, context


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    yield app
    app.close()


@pytest.fixture
def settle(app: App) -> Any:
    @app.job(timeout="1m", priority=5, queue="money", sla="1h", exclusive="account:{account}")
    def settle(run: Any, account: int, day: date = date(2026, 1, 1)) -> None: ...

    return settle


def run_of(app: App, run_id: int) -> RunRecord:
    return app.operations.run(run_id)


def test_a_run_is_recorded_with_what_its_policy_says(app: App, settle: Any) -> None:
    made = settle.enqueue(account=7, reason="audit", requested_by="ann")
    row = run_of(app, made.run_id)
    assert made.is_new
    assert (row.job, row.type, row.state, row.params) == ("settle", "manual", "queued", {"account": 7})
    assert (row.priority, row.queue, row.exclusive_key) == (5, "money", "account:7")
    assert (row.requested_by, row.reason) == ("ann", "audit")
    assert row.sla_at == row.created_at + timedelta(hours=1)


def test_parameters_are_given_as_in_a_call(app: App, settle: Any) -> None:
    made = settle.enqueue(7, date(2026, 1, 31), priority=9)
    row = run_of(app, made.run_id)
    assert row.params == {"account": 7, "day": "2026-01-31"}
    assert row.priority == 9


def test_parameters_that_do_not_fit_are_refused_at_once_and_nothing_is_recorded(app: App, settle: Any) -> None:
    for wrong in ({}, {"account": "seven"}, {"acount": 7, "account": 7}, {"account": 7, "run": 1}):
        with pytest.raises(InvalidParameters, match="job 'settle'"):
            settle.enqueue(**wrong)
    with pytest.raises(InvalidParameters, match="takes 2 parameters, not 3"):
        settle.enqueue(1, date(2026, 1, 1), 3)
    with pytest.raises(InvalidParameters, match="'account' is given twice"):
        settle.enqueue(1, account=1)
    assert app.operations.runs() == []


def test_parameters_called_like_an_option_are_given_by_params(app: App) -> None:
    @app.job
    def remind(key: str, at: str) -> None: ...

    made = remind.enqueue(params={"key": "k", "at": "noon"}, key="once")
    row = run_of(app, made.run_id)
    assert row.params == {"at": "noon", "key": "k"}
    assert row.origin_key == "request:once"


def test_options_and_parameters_apart_ask_for_the_same_as_together(app: App, settle: Any) -> None:
    wishes = {"reason": "audit", "requested_by": "ann", "priority": 9, "at": "2100-01-01T12:00Z"}
    together = run_of(app, settle.enqueue(7, **wishes).run_id)
    apart = run_of(app, settle.options(**wishes).enqueue(7).run_id)
    others = ("id", "created_at", "sla_at")
    assert {name: value for name, value in apart.to_json().items() if name not in others} == {
        name: value for name, value in together.to_json().items() if name not in others
    }


def test_options_serve_several_requests(app: App, settle: Any) -> None:
    keyed, only_one = settle.options(key="order-1"), settle.options(unique=True)
    first = keyed.enqueue(account=7)
    assert keyed.enqueue(account=7) == (first.run_id, False)
    assert only_one.enqueue(account=8).is_new
    assert not only_one.enqueue(account=8).is_new
    later = run_of(app, settle.options(delay="1h").enqueue(account=9).run_id)
    assert (later.available_at - later.created_at).total_seconds() == pytest.approx(3600, abs=5)


def test_options_take_nothing_else_and_leave_parameters_of_their_names_alone(app: App, settle: Any) -> None:
    @app.job
    def remind(key: str, at: str) -> None: ...

    row = run_of(app, remind.options(key="once").enqueue(key="k", at="noon").run_id)
    assert (row.params, row.origin_key) == ({"at": "noon", "key": "k"}, "request:once")
    with pytest.raises(TypeError, match="dealy"):
        settle.options(dealy="1h")
    with pytest.raises(InvalidParameters, match="job 'settle'"):
        settle.options(key="order-1").enqueue(acount=7)
    assert repr(settle.options(key="order-1")).endswith("with key>")


def test_a_run_asked_for_with_options_commits_with_the_callers_transaction(app: App, settle: Any) -> None:
    engine = sqlalchemy.create_engine(app.ledger.url.sqlalchemy())
    with engine.connect() as connection:
        settle.options(tx=connection).enqueue(account=7)
        connection.rollback()
        assert app.operations.runs() == []
        settle.options(tx=connection).enqueue(account=7)
        connection.commit()
    engine.dispose()
    assert len(app.operations.runs()) == 1


def test_the_options_of_every_way_to_ask_are_the_same() -> None:
    def taken(ask: Callable[..., object]) -> set[str]:
        return {name for name, each in inspect.signature(ask).parameters.items() if each.kind is each.KEYWORD_ONLY}

    known = set(RequestOptions.__annotations__)
    assert taken(JobHandle.enqueue) == {"params", *known}
    assert taken(Operations.enqueue) == known
    for ask in (JobHandle.options, App.enqueue):
        assert inspect.signature(ask).parameters["options"].annotation == "Unpack[RequestOptions]"


def test_the_same_key_twice_is_one_run_and_another_payload_is_refused(app: App, settle: Any) -> None:
    first = settle.enqueue(account=7, key="order-1")
    again = settle.enqueue(account=7, key="order-1")
    assert (again.run_id, again.is_new) == (first.run_id, False)
    with pytest.raises(DuplicateRequest, match=rf"run {first.run_id} of job 'settle'"):
        settle.enqueue(account=8, key="order-1")
    assert len(app.operations.runs()) == 1


def test_the_same_key_with_a_delay_is_still_the_same_request(settle: Any) -> None:
    first = settle.enqueue(account=7, key="order-1", delay="1h")
    assert settle.enqueue(account=7, key="order-1", delay="1h").run_id == first.run_id


def test_a_run_for_later_waits_for_its_time(app: App, settle: Any) -> None:
    noon = datetime(2100, 1, 1, 12, tzinfo=UTC)
    row = run_of(app, settle.enqueue(account=7, at=noon).run_id)
    assert (row.state, row.waits_for) == ("waiting", "time")
    assert row.available_at == noon
    delayed = run_of(app, settle.enqueue(account=7, delay=timedelta(hours=1)).run_id)
    assert abs(delayed.available_at - delayed.created_at - timedelta(hours=1)) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("wishes", "error", "says"),
    [
        ({"at": datetime(2030, 1, 1)}, InvalidTick, "no time zone"),
        ({"at": "noon"}, InvalidTick, "'noon' is not a valid time"),
        ({"delay": "soon"}, InvalidDuration, "delay 'soon'"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}, InvalidParameters, "not both"),
        ({"priority": "high"}, InvalidParameters, "priority 'high'"),
    ],
)
def test_bad_wishes_are_refused(settle: Any, wishes: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        settle.enqueue(account=7, **wishes)


def test_a_request_in_the_callers_transaction_comes_to_be_with_its_commit(app: App, settle: Any) -> None:
    engine = sqlalchemy.create_engine(app.ledger.url.sqlalchemy())
    with engine.connect() as connection:
        settle.enqueue(account=7, tx=connection)
        connection.rollback()
        assert app.operations.runs() == []
        made = settle.enqueue(account=8, tx=connection)
        connection.commit()
    assert [row.id for row in app.operations.runs()] == [made.run_id]
    engine.dispose()


def test_a_job_of_another_deploy_is_asked_for_by_name_and_checked_all_the_same(app: App, settle: Any, url: str) -> None:
    from fencepost.app.composing import publish

    publish(app)
    stranger = App(url)
    made = stranger.enqueue("settle", params={"account": 7})
    assert app.operations.run(made.run_id).queue == "money"
    assert app.operations.run(made.run_id).exclusive_key == "account:7"
    with pytest.raises(InvalidParameters, match="'account' must be given"):
        stranger.enqueue("settle")
    with pytest.raises(NoSuchJob, match="'setle'"):
        stranger.enqueue("setle")
    stranger.close()


def test_what_is_asked_for_inside_a_job_names_the_run_that_asked(app: App, settle: Any) -> None:
    made: list[Any] = []

    @app.job
    def parent() -> None:
        made.append(settle.enqueue(account=7))

    assert invoke(parent.job, CLAIM, context()).how == "succeeded"
    assert app.operations.run(made[0].run_id).requested_by == "run 12 of 'settle'"


def test_a_request_carries_the_generation_of_its_deploy(url: str) -> None:
    app = App(url, generation=4)
    app.job(name="x")(lambda: None)
    assert app.operations.run(app.enqueue("x").run_id).generation == 4
    app.close()


def test_the_first_use_of_a_sqlite_ledger_makes_its_tables(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/new.db")

    @app.job(every("1h"))
    def settle() -> None: ...

    assert settle.enqueue().is_new
    app.close()


def test_a_lock_of_the_application_lives_beside_its_ledger(app: App) -> None:
    with app.lock("month-end") as lease:
        assert app.locks.read("month-end").token == lease.token  # type: ignore[union-attr]


def test_an_option_that_the_function_has_as_a_parameter_is_refused_where_it_may_mean_either(app: App) -> None:
    @app.job
    def export(table: str, key: str = "id") -> None: ...

    with pytest.raises(InvalidParameters, match=r"export.options\(key=…\)"):
        export.enqueue(table="orders", key="customer_id")
    assert (
        run_of(app, export.options().enqueue(table="orders", key="customer_id").run_id).params["key"] == "customer_id"
    )
    assert run_of(app, export.enqueue(key="once", params={"table": "orders", "key": "k"}).run_id).params["key"] == "k"
