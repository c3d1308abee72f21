"""Rights below the web: what is outside of a scope is in no answer and no error, and looks as if it did not exist."""

import re
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

from fencepost import every
from fencepost.access.rights import NEED_ALL_JOBS, RIGHTS
from fencepost.core.rights import ALL_JOBS, NEEDS, WITHOUT_JOB, HumanAct, Role
from fencepost.errors import DuplicateRequest, FencepostError, NoSuchJob, NoSuchRun, NoSuchSchedule, NotAllowed
from fencepost.ledger import history, jobs, requests
from tests.access.scene import (
    CASES,
    MARK,
    MINE,
    NOTHING,
    OTHERS,
    PAST,
    PIECE,
    Scene,
    Target,
    methods_of,
    scene,
    set_run,
)

LOWER = {Role.OPERATOR: "viewer", Role.ADMIN: "operator"}


@pytest.fixture
def stage(ledger_url: str) -> Iterator[Scene]:
    yield from scene(ledger_url)


def outcome(call: Any, *about: Any) -> str:
    """What comes of a call, as text: all that it returns, or its error."""
    try:
        return repr(call(*about))
    except FencepostError as error:
        return f"{type(error).__name__}: {error} {vars(error)}"


def without(text: str, target: Target) -> str:
    """The text without what the caller has said itself."""
    for said in (target.job, target.schedule, str(target.run)):
        text = re.sub(rf"(?<![\w/-]){re.escape(said)}(?![\w/-])", "<said>", text)
    return re.sub(r"(; )?(did you mean '\w+'\?|there are: \w+(, \w+)*)", "", text)


def names_in(text: str) -> list[str]:
    return [name for name in OTHERS if re.search(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", text)]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_every_method_has_a_case_and_a_right(stage: Scene) -> None:
    assert methods_of(stage.of()) == set(CASES) == set(RIGHTS)


def test_nothing_of_other_jobs_is_in_any_answer_or_error(stage: Scene) -> None:
    ann = stage.of(**{MINE: "admin"})
    for name, call in CASES.items():
        of_nothing = without(outcome(call, ann, NOTHING), NOTHING)
        for target in stage.others.values():
            text = without(outcome(call, ann, target), target)
            assert MARK not in text, (name, target, text)
            assert not names_in(text), (name, target, text)
            assert not [each.run for each in stage.others.values() if str(each.run) in text], (name, target, text)
            assert text == of_nothing, (name, target)


def test_one_s_own_is_there_with_its_declared_part_and_other_jobs_are_not_named(stage: Scene) -> None:
    ann = stage.of(**{MINE: "viewer"})
    assert jobs.parents(stage.app.ledger) == [("of-Settle", "Settle"), (PIECE, MINE)]
    assert [each.name for each in ann.jobs()] == [PIECE, MINE]
    assert [each.id for each in ann.schedules.list()] == ["moving", MINE]
    assert {each.job for each in ann.runs()} == {MINE}
    assert ann.run(stage.mine.run).requested_by == "another job"
    assert [each.error for each in ann.attempts(stage.mine.run)] == ["ours"]
    assert {each.job for each in ann.journal()} == {MINE}
    [node] = ann.nodes()
    assert (node.name, node.jobs, node.queues) == ("node-1", (MINE,), ("default",))
    [waiting] = ann.runs(states=["waiting"])
    assert "until a run of another job is done" in str(ann.waits(waiting.id))
    told = [each.sentence for each in ann.why(MINE, "1970-01-01T01:00Z")]
    assert any("a run of another job held 'shared'" in each for each in told)
    [answer] = ann.why("moving", PAST)
    assert answer.run is None


def test_figures_are_of_one_s_own_jobs_and_another_s_are_not_there(stage: Scene) -> None:
    ann = stage.of(**{MINE: "viewer"})
    assert [(each.job, each.outcomes.succeeded, each.not_counting) for each in ann.figures()] == [
        (PIECE, 0, 0),
        (MINE, 1, 1),
    ]
    assert ann.figures(jobs=["Settle", "settle-eu", "no-such"]) == []
    assert [each.job for each in ann.figures(after=PIECE)] == [each.job for each in ann.figures(MINE)] == [MINE]
    for name in (*OTHERS, "no-such"):
        with pytest.raises(NoSuchJob):
            ann.figures(name)


def test_a_principal_without_any_role_finds_nothing(stage: Scene) -> None:
    nobody = stage.of()
    assert nobody.runs() == nobody.jobs() == nobody.nodes() == nobody.journal() == nobody.schedules.list() == []
    assert nobody.figures() == []
    with pytest.raises(NoSuchRun):
        nobody.run(stage.mine.run)


def test_a_page_is_filled_with_what_is_allowed(stage: Scene) -> None:
    """The limit counts runs of the scope, not those that were left out of it."""
    ann = stage.of(**{MINE: "viewer", PIECE: "viewer"})
    assert len(ann.runs(limit=3)) == 3
    assert [each.job for each in ann.runs(limit=1, after_id=0)] == [MINE]
    many = {MINE: "viewer"} | {f"absent-{n}": "viewer" for n in range(40)}  # asked for at once, not one by one
    assert [each.id for each in stage.as_roles(many).runs()] == [each.id for each in ann.runs()]


@pytest.mark.parametrize("kind", ["sqlite"])
class TestRoles:
    """On one database: the checks are the same code."""

    def test_a_role_that_is_too_low_is_refused_and_the_one_that_is_needed_is_not(self, stage: Scene) -> None:
        for name, act in RIGHTS.items():
            is_for_all = act is None or (NEEDS[act] is Role.VIEWER and name not in NEED_ALL_JOBS)
            if is_for_all or name.startswith(("letters", "bulk")):  # those need the code of a bulk job
                continue
            without_job = act in WITHOUT_JOB or name in NEED_ALL_JOBS
            enough = {ALL_JOBS if without_job else MINE: NEEDS[act].value}
            less = {MINE: "admin", ALL_JOBS: LOWER[NEEDS[act]]} if act in WITHOUT_JOB else {MINE: "admin"}
            low = less if without_job else {MINE: LOWER[NEEDS[act]]}
            with pytest.raises(NotAllowed, match=f"needs the role {NEEDS[act]}"):
                CASES[name](stage.as_roles(low), stage.mine)
            assert not outcome(CASES[name], stage.as_roles(enough), stage.mine).startswith("NotAllowed"), name

    def test_acts_are_recorded_under_the_caller_and_not_under_a_name_that_is_given(self, stage: Scene) -> None:
        ops = stage.app.operations.within(stage.of(**{MINE: "operator"})._authority.identity.scope())
        made = ops.trigger(MINE, by="eve", again=True).run_id
        ops.cancel(made, by="eve", reason="not now")
        ops.schedules.pause(MINE, by="eve")
        run = stage.app.operations.run(made)
        assert (run.requested_by, run.cancel_by) == ("host:ann", "host:ann")
        assert stage.app.schedules.get(MINE).paused_by == "host:ann"
        newest = stage.app.operations.audit.entries(limit=3)
        assert {(each.who, each.how) for each in newest} == {("host:ann", "host")}
        assert newest[0].address == "192.0.2.7"
        assert "eve" not in repr(newest)
        assert stage.app.operations.journal(run_id=made)[0].by == "host:ann"
        with pytest.raises(NotAllowed, match="trigger"):
            ops.enqueue(MINE, {})

    def test_a_bundle_takes_only_what_the_caller_may_operate(self, stage: Scene) -> None:
        ann = stage.as_roles({MINE: "operator", "settl": "viewer"})
        assert [each.old_id for each in ann.reprocess()] == [stage.mine.run]
        with pytest.raises(NotAllowed):
            ann.reprocess(job="settl")
        with pytest.raises(NoSuchJob):
            ann.reprocess(job="Settle")
        with pytest.raises(NotAllowed, match="operator"):
            stage.as_roles({MINE: "viewer"}).reprocess()

    def test_a_run_is_judged_by_its_row_not_by_what_the_request_says(self, stage: Scene) -> None:
        ann = stage.of(**{MINE: "operator"})
        set_run(stage.app, stage.mine.run, job="Settle")
        with pytest.raises(NoSuchRun):
            ann.retry(stage.mine.run)
        assert ann.reprocess() == []

    def test_a_bundle_judges_each_run_again_when_it_has_its_row(self, stage: Scene, monkeypatch: Any) -> None:
        def found_before_it_changed(*about: Any, **more: Any) -> Any:
            rows = history.runs(*about, **more)
            set_run(stage.app, stage.mine.run, job="Settle")
            return rows

        monkeypatch.setattr(requests, "runs", found_before_it_changed)
        assert stage.of(**{MINE: "operator"}).reprocess() == []

    def test_ids_and_keys_that_others_use_name_nobody(self, stage: Scene) -> None:
        stage.app.operations.trigger("Settle", {"note": f"{MARK} key"}, by="x", key="k1")
        ann = stage.of(**{MINE: "operator"})
        with pytest.raises(DuplicateRequest) as used:
            ann.trigger(MINE, key="k1")
        with pytest.raises(NotAllowed) as taken:
            ann.schedules.put("Settle", MINE, every("1h"))
        for error in (used.value, taken.value):
            assert MARK not in f"{error} {vars(error)}"
            assert "Settle" not in str(error).replace("'Settle'", "")

    def test_a_role_on_a_part_says_nothing_about_the_whole(self, stage: Scene) -> None:
        ann = stage.of(**{PIECE: "admin"})
        assert [each.name for each in ann.jobs()] == [PIECE]
        with pytest.raises(NoSuchJob):
            ann.trigger(MINE)
        with pytest.raises(NoSuchSchedule):
            ann.schedules.pause(MINE)

    def test_direct_scope_needs_a_name_and_takes_the_one_that_is_given(self, stage: Scene) -> None:
        with pytest.raises(FencepostError, match="say who"):
            stage.app.operations.trigger(MINE, by="", again=True)
        made = stage.app.operations.trigger(MINE, by="eve", again=True).run_id
        assert stage.app.operations.run(made).requested_by == "eve"

    def test_refused_acts_are_in_the_audit_up_to_ten_a_minute_and_then_as_a_count(self, stage: Scene) -> None:
        ann = stage.of(**{MINE: "viewer"})
        before = stage.app.operations.audit.entries(limit=1)[0].n
        for number in range(14):
            with pytest.raises(NotAllowed if number % 2 else NoSuchRun):
                ann.cancel(stage.mine.run if number % 2 else NOTHING.run)
        stage.authentication.close()
        said = [each for each in stage.app.operations.audit.entries(limit=50) if each.n > before][::-1]
        assert len(said) == 11
        assert {(each.who, each.outcome) for each in said} == {("host:ann", "refused")}
        assert [each.act for each in said] == ["cancel"] * 10 + ["several acts"]
        assert [each.detail["why"] for each in said[:2]] == ["NoSuchRun", "NotAllowed"]
        assert said[1].job == MINE
        assert said[-1].detail == {"count": 4}


def test_names_are_compared_byte_by_byte_on_every_database(stage: Scene) -> None:
    ann = stage.of(Settle="viewer")
    assert {each.job for each in ann.runs()} == {"Settle", "of-Settle"}
    assert sorted(map(attrgetter("name"), ann.jobs())) == ["Settle", "of-Settle"]
    assert HumanAct.LOOK in set(RIGHTS.values())
