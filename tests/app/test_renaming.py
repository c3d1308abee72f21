"""Jobs that got another name: their schedules, runs and keys go on, each due time once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fencepost import App, every
from fencepost.access import Authentication, HostPrincipal
from fencepost.access.access import Access
from fencepost.app.composing import publish
from fencepost.app.operations import Operations
from fencepost.core.rights import Scope
from fencepost.errors import AlreadyRequested, DuplicateRequest, InvalidJob, LedgerRefused, NoSuchJob
from fencepost.ledger import jobs, schedules
from fencepost.ledger.moving import rename, renaming_of
from fencepost.ledger.nodes import NewNode, join, leave
from testbed.wait import until
from tests.access.scene import set_run

_LONG_AGO_US = 3600 * 1_000_000


@pytest.fixture
def apps() -> Iterator[list[App]]:
    made: list[App] = []
    yield made
    for app in made:
        app.close()


def _program(apps: list[App], url: str, name: str, interval: str = "1h", **words: Any) -> App:
    app = App(url, ttl="6s", observers=words.pop("observers", ()))
    app.command(name, ["true"], every(interval), **words)
    apps.append(app)
    return app


def _set_back(app: App, schedule: str, by_us: int = _LONG_AGO_US) -> int:
    """Let a schedule be planned through an earlier instant, and return that."""
    table = app.ledger.tables.name("schedule")
    before = app.ledger.read(
        lambda cursor: _one(cursor, f"SELECT planned_through FROM {table} WHERE id = '{schedule}'")
    )
    change = f"UPDATE {table} SET planned_through = {before - by_us} WHERE id = '{schedule}'"
    app.ledger.write(lambda cursor: cursor.execute(change))
    return int(before - by_us)


def _one(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return cursor.fetchone()[0]


def _rows(app: App) -> list[tuple[str, str]]:
    return [(each.id, each.job) for each in schedules.schedules(app.ledger)]


def _through(app: App, schedule: str) -> int:
    return schedules.schedule(app.ledger, schedule).planned_through


def _a_node(app: App, *names: str) -> str:
    """Let a node of the deploy before take part; return its id."""
    node_id = "1" * 32
    join(app.ledger, NewNode(node_id, "older", "g", 1, 0, "0.1.0", 1, ("default",), names))
    return node_id


def test_a_renamed_job_goes_on_with_its_schedules_how_far_they_are_planned_and_its_open_runs(
    apps: list[App], url: str
) -> None:
    before = _program(apps, url, "nightly")
    publish(before)
    before.schedules.put("nightly:eu", "nightly", every("2h"))
    planned = [_set_back(before, each) for each in ("nightly", "nightly:eu")]
    queued = before.enqueue("nightly").run_id
    after = _program(apps, url, "settle", formerly="nightly")
    publish(after)
    assert _rows(after) == [("nightly", "settle"), ("nightly:eu", "settle")]
    assert [_through(after, each) for each in ("nightly", "nightly:eu")] == planned
    assert (after.operations.run(queued).job, after.operations.run(queued).exclusive_key) == ("settle", "job:nightly")
    assert after.operations.run(after.enqueue("settle").run_id).exclusive_key == "job:nightly"
    [entry] = [each for each in after.operations.journal() if each.what == "job renamed"]
    assert (entry.job, "'nightly' is called 'settle' now" in (entry.reason or "")) == ("settle", True)
    assert not [each for each in after.operations.runs() if each.state == "skipped"]


def test_while_a_living_node_has_the_old_name_its_schedules_stay_there(apps: list[App], url: str) -> None:
    told: list[Any] = []
    before = _program(apps, url, "nightly")
    publish(before)
    planned, older = _set_back(before, "nightly"), _a_node(before, "nightly")
    queued = before.enqueue("nightly").run_id
    after = _program(apps, url, "settle", "2h", formerly="nightly", observers=[told.append])
    after.start()
    assert _rows(after) == [("nightly", "nightly")]
    assert after.schedules.get("nightly").schedule == every("1h")
    assert after.operations.run(queued).job == "nightly"
    assert any("under its former name" in (event.reason or "") for event in told)
    leave(after.ledger, older)
    until(lambda: _rows(after) == [("nightly", "settle")], 30, what="the schedule has the new name")
    until(
        lambda: after.operations.run(queued).state == "succeeded", 30, what="what was queued under the old name has run"
    )
    assert after.schedules.get("nightly").schedule == every("2h")
    assert after.operations.run(queued).job == "settle"
    assert _through(after, "nightly") > planned


def test_each_due_time_runs_once_across_a_rolling_rename(apps: list[App], url: str) -> None:
    before = _program(apps, url, "nightly", "1s", misfire="all")
    before.start()
    until(lambda: before.operations.runs(job="nightly", states=["succeeded"]), 30, what="it has run under the old name")
    after = _program(apps, url, "settle", "1s", misfire="all", formerly="nightly")
    after.start()
    assert _rows(after) == [("nightly", "nightly")]
    before.stop()
    until(
        lambda: len(after.operations.runs(job="settle", states=["succeeded"])) > 1,
        30,
        what="it runs under the new name",
    )
    after.stop()
    rows = after.operations.runs(limit=1000)
    dues = [each.due_at for each in rows]
    assert len(set(dues)) == len(dues)
    covered = sum(each.ticks for each in rows)
    assert covered == (max(dues) - min(each.first_due_at for each in rows)) // timedelta(seconds=1) + 1


def test_a_node_of_the_old_name_that_comes_back_takes_nothing_from_the_new_one(apps: list[App], url: str) -> None:
    publish(_program(apps, url, "nightly"))
    after = _program(apps, url, "settle", formerly="nightly")
    after.start()
    back = _program(apps, url, "nightly")
    back.start()
    assert _rows(back) == [("nightly", "settle")]
    after.stop()
    until(lambda: _rows(back) == [("nightly", "nightly")], 30, what="the roll-back is applied")
    assert not [each for each in back.operations.runs() if each.state == "skipped"]


def test_a_roll_back_takes_open_runs_along(apps: list[App], url: str) -> None:
    after = _program(apps, url, "settle", formerly="nightly")
    publish(after)
    queued = after.enqueue("settle").run_id
    back = _program(apps, url, "nightly")
    publish(back)
    assert (back.operations.run(queued).job, _rows(back)) == ("nightly", [("nightly", "nightly")])


def test_a_key_given_under_the_old_name_is_the_same_request(apps: list[App], url: str) -> None:
    before = _program(apps, url, "nightly")
    publish(before)
    first = before.enqueue("nightly", key="order-7")
    after = _program(apps, url, "settle", formerly="nightly")
    publish(after)
    assert after.enqueue("settle", key="order-7") == first._replace(is_new=False)
    with pytest.raises(DuplicateRequest):
        after.enqueue("settle", key="order-7", at="2030-01-01T00:00Z")


def test_what_is_asked_for_under_the_old_name_is_a_run_of_the_new_one_at_once(apps: list[App], url: str) -> None:
    before = _program(apps, url, "nightly")
    publish(before)
    first = before.enqueue("nightly", key="order-7")
    set_run(before, first.run_id, state="succeeded", ended_at=1)
    after = _program(apps, url, "settle", formerly="nightly")
    publish(after)
    ops = Operations(after.ledger, Scope.direct())  # without the code of either
    assert ops.enqueue("nightly", {}, key="order-7") == first._replace(is_new=False)
    made = ops.run(ops.trigger("nightly", by="ann").run_id)
    assert (made.job, made.exclusive_key) == ("settle", "job:nightly")
    with pytest.raises(AlreadyRequested):
        ops.trigger("settle", by="bob")
    assert ops.backfill("nightly", "2026-01-01T00:00Z", "2026-01-01T00:00Z", by="ann").new == 1
    only_old = Authentication(ops).by_host(HostPrincipal("eve", {"nightly": "operator", "settle": "viewer"}))
    assert ops.run(only_old.trigger("nightly", again=True).run_id).job == "nightly"
    _a_node(before, "nightly")
    assert ops.run(ops.enqueue("nightly", {}).run_id).job == "nightly"


def test_after_a_roll_back_it_is_a_run_of_the_old_name_again(apps: list[App], url: str) -> None:
    """The newer name stays on record, with `formerly`: what was asked for while no node lived went to that."""
    deploys: list[tuple[str, dict[str, Any]]] = [("nightly", {}), ("settle", {"formerly": "nightly", "queue": "late"})]
    for name, words in [*deploys, deploys[0]]:
        publish(_program(apps, url, name, **words))
    ops = Operations(apps[-1].ledger, Scope.direct())  # without the code of either
    made = [ops.enqueue("nightly", {}).run_id, ops.trigger("nightly", by="ann", again=True).run_id]
    assert [(ops.run(each).job, ops.run(each).queue) for each in made] == [("nightly", "default")] * 2
    assert {each.name: each.renamed_to for each in ops.jobs()} == {"nightly": None, "settle": None}
    assert ops.job("nightly").renamed_to is None
    node = _a_node(apps[-1], "settle")  # of the deploy that was rolled back: one that lives says more
    assert ops.run(ops.enqueue("nightly", {}).run_id).job == "settle"
    assert (ops.job("nightly").renamed_to, ops.jobs()[0].renamed_to) == ("settle", "settle")
    leave(apps[-1].ledger, node)
    publish(_program(apps, url, "close", formerly=["nightly", "settle"]))
    assert {each.name: each.renamed_to for each in ops.jobs()} == {"close": None, "nightly": "close", "settle": "close"}
    assert ops.run(ops.enqueue("settle", {}).run_id).job == "close"
    publish(_program(apps, url, "settle", formerly="nightly", queue="late"))
    for name in ("nightly", "settle"):
        assert ops.run(ops.enqueue(name, {}).run_id).job == "settle"


class TestWhatIsRefused:
    def test_a_former_name_that_a_job_has_now(self) -> None:
        app = App("sqlite:///:memory:")
        app.command("nightly", ["true"])
        with pytest.raises(InvalidJob, match="'settle': formerly names 'nightly', which is a job of its own"):
            app.command("settle", ["true"], formerly="nightly")
        app.command("close", ["true"], formerly="monthly")
        with pytest.raises(InvalidJob, match="'close': formerly names 'monthly'"):
            app.command("monthly", ["true"])
        with pytest.raises(InvalidJob, match="formerly names 'same' itself"):
            app.command("same", ["true"], formerly="same")

    def test_two_jobs_that_both_say_to_have_had_a_name(self) -> None:
        app = App("sqlite:///:memory:")
        app.command("settle", ["true"], formerly="nightly")
        with pytest.raises(InvalidJob, match="'book' and 'settle' both say formerly='nightly'"):
            app.command("book", ["true"], formerly=["nightly"])

    def test_a_second_rename_that_leaves_out_the_first_name(self, apps: list[App], url: str) -> None:
        publish(_program(apps, url, "a"))
        publish(_program(apps, url, "b", formerly="a"))
        with pytest.raises(InvalidJob, match=r"write formerly=\['a', 'b'\]"):
            publish(_program(apps, url, "c", formerly="b"))
        third = _program(apps, url, "c", formerly=["a", "b"])
        publish(third)
        assert _rows(third) == [("a", "c")]

    def test_a_rename_back_that_names_the_second_name(self, apps: list[App], url: str) -> None:
        publish(_program(apps, url, "a"))
        publish(_program(apps, url, "b", formerly="a"))
        with pytest.raises(InvalidJob, match="leave formerly out"):
            publish(_program(apps, url, "a", formerly="b"))
        back = _program(apps, url, "a")
        publish(back)
        assert _rows(back) == [("a", "a")]

    def test_a_former_name_that_is_dropped_or_comes_too_late(self, apps: list[App], url: str) -> None:
        publish(_program(apps, url, "b", formerly="a"))
        with pytest.raises(InvalidJob, match=r"Keep formerly='a'.*fencepost jobs rename a b"):
            publish(_program(apps, url, "b"))
        publish(_program(apps, url, "d"))
        with pytest.raises(InvalidJob, match=r"stored as a separate job.*fencepost jobs rename c d"):
            publish(_program(apps, url, "d", formerly="c"))


class TestForGood:
    """`fencepost jobs rename`: nothing keeps the old name."""

    def test_schedules_how_far_they_are_planned_runs_and_keys_get_the_new_name(self, apps: list[App], url: str) -> None:
        before = _program(apps, url, "nightly")
        publish(before)
        before.schedules.put("nightly:eu", "nightly", every("2h"))
        planned = [_set_back(before, each) for each in ("nightly", "nightly:eu")]
        queued = before.enqueue("nightly").run_id
        ledger = before.ledger
        moved = rename(ledger, renaming_of(ledger, "nightly", "settle"), by="ann", reason="clearer")
        assert (moved.schedules, moved.runs) == (2, 1)
        assert _rows(before) == [("nightly:eu", "settle"), ("settle", "settle")]
        assert [_through(before, each) for each in ("settle", "nightly:eu")] == planned
        assert (before.operations.run(queued).job, before.operations.run(queued).exclusive_key) == (
            "settle",
            "job:settle",
        )
        assert [row.name for row in jobs.jobs(ledger)] == ["settle"]
        after = _program(apps, url, "settle")
        publish(after)
        assert _rows(after) == [("nightly:eu", "settle"), ("settle", "settle")]
        assert not [each for each in after.operations.runs() if each.state == "skipped"]
        [entry] = [each for each in after.operations.journal() if each.what == "job renamed"]
        assert (entry.job, entry.by, entry.reason) == ("settle", "ann", "clearer")

    def test_so_does_what_went_by_the_first_name_and_formerly_may_go(self, apps: list[App], url: str) -> None:
        publish(_program(apps, url, "nightly"))
        after = _program(apps, url, "settle", formerly="nightly")
        publish(after)
        planned = _set_back(after, "nightly")
        ran = {each: after.enqueue("settle").run_id for each in ("nightly", "nightly:2", "nightly:eu")}
        for schedule, run_id in ran.items():
            set_run(after, run_id, schedule=schedule)
        rename(after.ledger, renaming_of(after.ledger, "nightly", "settle"), by="ann")
        publish(_program(apps, url, "settle"))
        assert (_rows(after), _through(after, "settle")) == ([("settle", "settle")], planned)
        moved = [after.operations.run(run_id).schedule for run_id in ran.values()]
        assert moved == ["settle", "settle:2", "nightly:eu"]

    def test_so_do_keys_of_what_was_requested_under_the_new_name(
        self, apps: list[App], url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only runs of the old name and of a schedule were looked for: others ran beside those that came after."""
        monkeypatch.setattr("fencepost.ledger.moving._BATCH", 2)
        publish(_program(apps, url, "nightly"))
        after = _program(apps, url, "settle", formerly="nightly")
        publish(after)
        asked = [after.enqueue("settle").run_id for _ in range(5)]
        for run_id, words in zip(asked, ({"state": "dead", "ended_at": 1}, {"exclusive_key": "own"}), strict=False):
            set_run(after, run_id, **words)
        assert {after.operations.run(each).exclusive_key for each in asked} == {"job:nightly", "own"}
        assert after.operations.rename_job("nightly", "settle", by="ann").runs == 4
        assert [after.operations.run(each).exclusive_key for each in asked] == [
            "job:settle",
            "own",
            *["job:settle"] * 3,
        ]
        repeated = after.operations.retry(asked[0], by="ann")
        assert after.operations.run(repeated).exclusive_key == "job:settle"

    def test_where_the_new_name_has_begun_already_it_is_planned_from_where_both_were(
        self, apps: list[App], url: str
    ) -> None:
        before, after = _program(apps, url, "nightly"), _program(apps, url, "settle")
        publish(before)
        publish(after)
        _set_back(after, "settle")
        through = _through(after, "nightly")
        rename(after.ledger, renaming_of(after.ledger, "nightly", "settle", into_existing=True), by="ann")
        assert (_rows(after), _through(after, "settle")) == ([("settle", "settle")], through)

    def test_a_job_that_somebody_else_renames_at_the_same_time_is_not_said_to_be_renamed_twice(
        self, apps: list[App], url: str
    ) -> None:
        app = _program(apps, url, "nightly")
        publish(app)
        first, second = (renaming_of(app.ledger, "nightly", new) for new in ("settle", "account"))
        rename(app.ledger, first, by="ann")
        with pytest.raises(NoSuchJob):
            rename(app.ledger, second, by="bob")
        assert {(each.who, each.outcome) for each in app.operations.audit.entries()} == {("ann", "done")}

    def test_refused_while_a_living_node_has_either_name(self, apps: list[App], url: str) -> None:
        before = _program(apps, url, "nightly")
        publish(before)
        node = _a_node(before, "nightly")
        with pytest.raises(LedgerRefused, match="living node older has job 'nightly'"):
            renaming_of(before.ledger, "nightly", "settle")
        leave(before.ledger, node)
        with pytest.raises(NoSuchJob):
            renaming_of(before.ledger, "nigthly", "settle")
        assert renaming_of(before.ledger, "nightly", "settle").keys == ["job:nightly"]

    def test_of_two_renames_by_formerly_the_names_in_between_go_too(
        self, apps: list[App], url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names, ended = ("nightly", "settle", "account"), list[int]()
        for number, name in enumerate(names):
            app = _program(apps, url, name, formerly=names[:number])
            publish(app)
            ended.append(app.enqueue(name).run_id)
            set_run(app, ended[-1], state="succeeded", ended_at=1)
            Access(app.ledger, Scope.direct("root")).give(f"proxy:{name}", "operator", jobs=[name])
        app = apps[-1]
        planned, waiting = _set_back(app, "nightly"), app.enqueue("account").run_id
        set_run(app, waiting, schedule="nightly")
        assert [app.operations.run(each).job for each in (*ended, waiting)] == [*names, "account"]
        with monkeypatch.context() as patched:
            patched.setattr("fencepost.ledger.moving._moved", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                app.operations.rename_job("nightly", "account", by="ann")
        for old, new in (("settle", "third"), ("settle", "account")):
            with pytest.raises(LedgerRefused, match="Complete it first: fencepost jobs rename nightly account"):
                app.operations.rename_job(old, new, by="bob")
        publish(_program(apps, url, "account", formerly="nightly"))  # what was begun moves all three all the same
        app.operations.rename_job("nightly", "account", by="ann")
        assert (_rows(app), _through(app, "account")) == ([("account", "account")], planned)
        assert {each.job for each in app.operations.runs()} == {"account"}
        assert app.operations.run(waiting).exclusive_key == "job:account"
        assert [each.name for each in app.operations.jobs()] == ["account"]
        assert {(each.principal, each.job) for each in Access(app.ledger, Scope.direct("root")).permissions()} == {
            (f"proxy:{name}", "account") for name in names
        }
        assert app.operations.audit.entries()[0].detail["between"] == ["settle"]
        publish(_program(apps, url, "account"))
        assert _rows(app) == [("account", "account")]

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_name_in_between_that_is_a_job_of_its_own_now_is_not_taken_along(self, apps: list[App], url: str) -> None:
        publish(_program(apps, url, "nightly"))
        app = _program(apps, url, "account", formerly=["nightly", "settle"])
        publish(app)
        publish(_program(apps, url, "settle"))
        with pytest.raises(LedgerRefused, match="has 'settle' among its former names, which is a job of its own"):
            app.operations.rename_job("nightly", "account", by="ann")
        publish(_program(apps, url, "close"))
        with pytest.raises(LedgerRefused, match="remove them first: fencepost jobs rename nightly account"):
            app.operations.rename_job("close", "account", by="ann", into_existing=True)

    def test_former_name_of_a_job_that_lives_takes_nothing_from_it(self, apps: list[App], url: str) -> None:
        """Taken for a misspelt name, it took the schedule, the runs and the checkpoints that `settle` goes on with."""
        publish(_program(apps, url, "nightly"))
        after = _program(apps, url, "settle", formerly="nightly")
        publish(after)
        running = after.enqueue("settle").run_id
        set_run(after, running, schedule="nightly", state="running", node="1" * 32)
        before = (_rows(after), after.operations.run(running))
        with pytest.raises(LedgerRefused, match="'nightly' is a former name of job 'settle'") as refused:
            after.operations.rename_job("nightly", "setle", by="ann")
        assert "run: fencepost jobs rename nightly settle; and then: fencepost jobs rename settle setle" in str(
            refused.value
        )
        _program(apps, url, "close")
        publish(apps[-1])
        with pytest.raises(LedgerRefused, match="take it from that job first: fencepost jobs rename nightly settle"):
            after.operations.rename_job("close", "nightly", by="ann", into_existing=True)
        assert ([each for each in _rows(after) if each[1] != "close"], after.operations.run(running)) == before
        set_run(after, running, state="succeeded", ended_at=1)
        for old, new in (("nightly", "settle"), ("settle", "setle")):  # as it was said
            after.operations.rename_job(old, new, by="ann")
        assert _rows(after) == [("close", "close"), ("setle", "setle")]

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_after_a_roll_back_the_withdrawn_name_is_forgotten_first(self, apps: list[App], url: str) -> None:
        for name, words in (("nightly", {}), ("settle", {"formerly": "nightly"}), ("nightly", {})):
            publish(_program(apps, url, name, **words))
        ops = apps[-1].operations
        with pytest.raises(LedgerRefused, match="If 'settle' was withdrawn, run: fencepost jobs forget settle"):
            ops.rename_job("nightly", "account", by="ann")
        with pytest.raises(LedgerRefused, match="deploy the code with the name 'nightly' and without formerly"):
            ops.rename_job("settle", "nightly", by="ann")
        with pytest.raises(LedgerRefused, match="Run: fencepost jobs rename nightly settle; and then: fencepost jobs"):
            ops.rename_job("settle", "account", by="ann")
        ops.forget_job("settle", by="ann")
        ops.rename_job("nightly", "account", by="ann")
        assert _rows(apps[-1]) == [("account", "account")]

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_no_refusal_leads_back_to_another(self, apps: list[App], url: str) -> None:
        """After a roll-back to the second of three names, the first would have been renamed by what was refused."""
        names = ("nightly", "settle", "account")
        for number in (0, 1, 2, 1):
            publish(_program(apps, url, names[number], formerly=names[:number]))
        ops = apps[-1].operations
        said = "A program with 'settle' was started after that. If 'account' was withdrawn, run: fencepost jobs forget"
        with pytest.raises(LedgerRefused, match="run: fencepost jobs rename nightly settle"):
            ops.rename_job("nightly", "close", by="ann")
        with pytest.raises(LedgerRefused, match=said):
            ops.rename_job("nightly", "settle", by="ann")
        ops.forget_job("account", by="ann")
        for old, new in (("nightly", "settle"), ("settle", "close")):
            ops.rename_job(old, new, by="ann")
        assert (_rows(apps[-1]), [each.name for each in ops.jobs()]) == ([("close", "close")], ["close"])

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_what_a_refusal_advises_cancels_no_run_of_a_name_in_between_that_was_left_out(
        self, apps: list[App], url: str
    ) -> None:
        publish(_program(apps, url, "nightly"))
        publish(_program(apps, url, "settle", formerly="nightly"))
        run = apps[-1].operations.trigger("settle", by="ann").run_id
        publish(_program(apps, url, "account", formerly="nightly"))
        names = "formerly=['nightly', 'settle']"
        with pytest.raises(LedgerRefused, match=re.escape(f"in the code of 'account' ({names})")) as refused:
            apps[-1].operations.rename_job("nightly", "account", by="ann")
        assert "forget" not in str(refused.value)
        publish(_program(apps, url, "account", formerly=("nightly", "settle")))
        apps[-1].operations.rename_job("nightly", "account", by="ann")
        found = apps[-1].operations.run(run)
        assert (found.job, found.state) == ("account", "queued")

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_what_was_begun_is_completed_once_no_node_has_a_name_that_came_since(
        self, apps: list[App], url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = _program(apps, url, "nightly")
        publish(app)
        with monkeypatch.context() as patched:
            patched.setattr("fencepost.ledger.moving._moved", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                app.operations.rename_job("nightly", "account", by="ann")
        publish(_program(apps, url, "settle", formerly="nightly"))
        node = _a_node(app, "settle")
        with pytest.raises(LedgerRefused, match="living node older has job 'settle'"):
            app.operations.rename_job("nightly", "account", by="ann")
        leave(app.ledger, node)
        app.operations.rename_job("nightly", "account", by="ann")
        assert _rows(app) == [("account", "account")]
