"""`fencepost jobs rename` to the name of another job: refused, unless a person says that both are the same work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import update

from fencepost import App, every
from fencepost.access import Authentication, HostPrincipal
from fencepost.access.access import Access
from fencepost.app.composing import publish
from fencepost.core.rights import ALL_JOBS, Scope
from fencepost.errors import LedgerRefused, NoSuchJob
from fencepost.ledger import history, moving, schedules
from tests.access.scene import set_run


@pytest.fixture
def kind() -> str:
    return "sqlite"  # the statements are tested on every database in tests/app/test_renaming.py


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """Two jobs: `settle` has a run that has ended, and bob operates it; `greet` has a schedule alone."""
    app = App(url)
    for name in ("settle", "greet"):
        app.command(name, ["true"], every("1h"))
    publish(app)
    _end(app, app.operations.trigger("settle", by="ann").run_id)
    Access(app.ledger, Scope.direct("root")).give("proxy:bob", "operator", jobs=["settle"])
    yield app
    app.close()


def _end(app: App, run_id: int) -> None:
    run = app.ledger.tables.run
    change = update(run).where(run.c.id == run_id).values(state="succeeded", ended_at=1)
    app.ledger.write(lambda cursor: app.ledger.change(cursor, change))


def _jobs_of(app: App) -> dict[str, list[str]]:
    """What is on record, by kind, each with the job that it belongs to."""
    permissions = Access(app.ledger, Scope.direct("root")).permissions()
    return {
        "jobs": [each.name for each in app.operations.jobs()],
        "schedules": [f"{each.id} of {each.job}" for each in schedules.schedules(app.ledger)],
        "runs": [each.job for each in app.operations.runs()],
        "permissions": [f"{each.principal} on {each.job}" for each in permissions],
    }


def test_the_name_of_another_job_is_refused_and_nothing_is_done(app: App) -> None:
    before = _jobs_of(app)
    with pytest.raises(LedgerRefused) as refused:
        app.operations.rename_job("settle", "greet", by="ann")
    assert "'greet' is another job on record, which has 1 schedule: " in str(refused.value)
    assert "nothing was renamed. Choose a name that no job has." in str(refused.value)
    assert "--into-existing" in str(refused.value)
    assert _jobs_of(app) == before
    assert not [each for each in app.operations.audit.entries() if "rename" in each.act]


def test_the_refusal_names_all_that_the_other_job_has(app: App) -> None:
    with pytest.raises(LedgerRefused) as refused:
        app.operations.rename_job("greet", "settle", by="ann")
    assert "which has 1 schedule, runs (the newest is run 1) and 1 permission: " in str(refused.value)


def test_a_job_on_record_that_has_nothing_yet_takes_the_name(app: App) -> None:
    newer = App(app.ledger.url.text)
    newer.command("account", ["true"])
    publish(newer)
    newer.close()
    app.operations.rename_job("settle", "account", by="ann")
    assert _jobs_of(app) == {
        "jobs": ["account", "greet"],
        "schedules": ["account of account", "greet of greet"],
        "runs": ["account"],
        "permissions": ["proxy:bob on account"],
    }


def test_a_rename_that_was_cut_off_is_repeated_also_by_code_that_says_formerly(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moving, "_moved", cut)
    with pytest.raises(KeyboardInterrupt):
        app.operations.rename_job("settle", "account", by="ann")
    monkeypatch.undo()
    assert _jobs_of(app)["runs"] == ["account"]
    newer = App(app.ledger.url.text)
    newer.command("account", ["true"], every("1h"), formerly="settle")
    publish(newer)
    newer.close()
    app.operations.rename_job("settle", "account", by="ann")
    assert _jobs_of(app)["permissions"] == ["proxy:bob on account"]
    assert _jobs_of(app)["schedules"] == ["account of account", "greet of greet"]


def test_a_rename_that_was_cut_off_is_repeated_where_the_new_name_was_on_record_and_had_nothing(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = App(app.ledger.url.text)
    newer.command("account", ["true"])
    publish(newer)
    monkeypatch.setattr(moving, "_moved", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        app.operations.rename_job("settle", "account", by="ann")
    monkeypatch.undo()
    assert _jobs_of(app)["runs"] == ["account"]
    with pytest.raises(LedgerRefused, match="'settle' is being renamed to 'account'"):
        app.operations.rename_job("greet", "account", by="ann")  # which nobody began
    app.operations.rename_job("settle", "account", by="ann")
    assert _jobs_of(app)["permissions"] == ["proxy:bob on account"]
    newer.close()


def test_two_that_are_the_same_work_become_one_and_what_was_deleted_and_taken_is_on_record(app: App) -> None:
    done = app.operations.rename_job("settle", "greet", by="ann", reason="one job", into_existing=True)
    assert (done.schedules, done.runs, done.schedules_deleted, done.permissions_taken) == (0, 1, ("settle",), 1)
    assert _jobs_of(app) == {
        "jobs": ["greet"],
        "schedules": ["greet of greet"],
        "runs": ["greet"],
        "permissions": [],
    }
    noted = [(each.what, each.job, each.schedule, each.by) for each in app.operations.journal()[:2]]
    assert noted == [("job renamed", "greet", None, "ann"), ("schedule deleted", "greet", "settle", "ann")]
    done, _, _, begun = app.operations.audit.entries()[:4]
    assert done.detail == {
        "begun": begun.n - 1,
        "formerly": "settle",
        "schedules": 0,
        "runs": 1,
        "permissions": 0,
        "into_existing": True,
        "schedules_deleted": ["settle"],
        "permissions_taken": 1,
    }


def test_a_job_that_gets_the_name_meanwhile_is_not_joined(app: App) -> None:
    found = moving.renaming_of(app.ledger, "settle", "account")
    moving.rename(app.ledger, moving.renaming_of(app.ledger, "greet", "account"), by="bob")
    with pytest.raises(LedgerRefused, match="job 'account' was recorded while 'settle' was being renamed"):
        moving.rename(app.ledger, found, by="ann")
    assert _jobs_of(app)["jobs"] == ["account", "settle"]
    assert _jobs_of(app)["permissions"] == ["proxy:bob on settle"]


@pytest.mark.parametrize("state", ["dead", "succeeded"])
def test_history_of_a_forgotten_job_joins_another_only_if_that_is_said(app: App, state: str) -> None:
    """It was merged without a question, and its runs that were given up were repeated as runs of the other job."""
    set_run(app, 1, state=state)
    app.operations.forget_job("settle", by="ann")
    before = _jobs_of(app)
    with pytest.raises(LedgerRefused, match="no job has the name 'settle' any more") as refused:
        app.operations.rename_job("settle", "greet", by="bob")
    assert "--into-existing" in str(refused.value)
    assert _jobs_of(app) == before
    assert app.operations.reprocess(job="greet", by="bob") == []
    assert not [each for each in app.operations.audit.entries() if "rename" in each.act]
    with pytest.raises(NoSuchJob):
        app.operations.rename_job("settle", "account", by="bob")
    assert app.operations.rename_job("settle", "greet", by="bob", into_existing=True).runs == 1
    assert [each.job for each in app.operations.runs()] == ["greet"]


@pytest.mark.parametrize("state", ["queued", "waiting", "running"])
def test_what_goes_on_under_a_name_that_no_job_has_joins_one_without_a_question(app: App, state: str) -> None:
    left = app.operations.trigger("settle", by="ann", again=True).run_id
    app.operations.forget_job("settle", by="ann")
    set_run(app, left, state=state, ended_at=None)
    if state == "running":
        with pytest.raises(LedgerRefused, match="has not ended"):
            app.operations.rename_job("settle", "greet", by="bob")
        set_run(app, left, state="queued")
    assert app.operations.rename_job("settle", "greet", by="bob").runs == 2


def test_a_schedule_is_kept_where_the_new_name_had_one_that_was_deleted(app: App) -> None:
    app.operations.forget_job("greet", by="ann")
    done = app.operations.rename_job("settle", "greet", by="ann")
    assert (done.schedules, _jobs_of(app)["schedules"]) == (1, ["greet of greet"])
    assert schedules.schedule(app.ledger, "greet").next_due_at is not None


def test_a_schedule_of_a_third_job_keeps_its_id(app: App) -> None:
    app.schedules.put("account", "greet", every("2h"))
    with pytest.raises(LedgerRefused, match="the schedule 'account' of job 'greet' has the id"):
        app.operations.rename_job("settle", "account", by="ann")
    assert history.run(app.ledger, 1).job == "settle"


def test_a_misspelt_name_is_answered_with_the_one_it_resembles(app: App) -> None:
    with pytest.raises(NoSuchJob, match=r"there is no job 'setle' in the ledger; did you mean 'settle'\?"):
        app.operations.rename_job("setle", "nightly", by="ann")


def test_through_authorized_it_is_refused_and_asked_for_in_the_same_words(app: App) -> None:
    ann = Authentication(app.operations).by_host(HostPrincipal("ann", {ALL_JOBS: "admin"}))
    with pytest.raises(LedgerRefused, match="--into-existing"):
        ann.rename_job("settle", "greet")
    assert ann.rename_job("settle", "greet", into_existing=True).permissions_taken == 1
