"""Roles that have to give a reason for every act: without one nothing is done, and the refusal is in the audit."""

import inspect
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import pytest

from fencepost.access import Access, HostPrincipal
from fencepost.access.repeating import KeyedAct, KeyedRequest
from fencepost.access.rights import RIGHTS
from fencepost.core.noted import says_something
from fencepost.core.rights import ALL_JOBS, LOOKS, NEEDS, WITHOUT_JOB, HumanAct, Scope
from fencepost.errors import (
    ConfigurationError,
    IllegalMove,
    InvalidParameters,
    NoSuchRun,
    NotAllowed,
    NotInLedger,
    ReasonRequired,
)
from tests.access.scene import CASES, MINE, NOTHING, PIECE, Scene, scene

LOOKING = {"access.accounts", "access.permissions", "access.role_reasons", "access.api_tokens", "access.logins"}
ACTS = {name: act for name, act in RIGHTS.items() if act is not None and act not in LOOKS and name not in LOOKING}
IN_CODE = ("letters", "bulk")  # those need the code of a bulk job: tests/access/test_authorized_bulk.py


@pytest.fixture
def stage(ledger_url: str) -> Iterator[Scene]:
    yield from scene(ledger_url)


@pytest.fixture
def access(stage: Scene) -> Access:
    return Access(stage.app.ledger, Scope.direct("root"))


def refused(stage: Scene) -> list[tuple[Any, ...]]:
    found = [each for each in stage.app.operations.audit.entries() if each.outcome == "refused"]
    return [(each.who, each.act, each.job, each.detail["why"]) for each in found]


def state(stage: Scene) -> Any:
    ops = stage.app.operations
    return ops.runs(), list(ops.schedules.iterate()), ops.pauses.list(), ops.journal()


@pytest.mark.parametrize("reason", [None, " \n"])
def test_operator_has_to_say_why_and_the_refusal_is_on_record(stage: Scene, access: Access, reason: str | None) -> None:
    ann = stage.of(**{MINE: "operator"})
    ann.retry(stage.mine.run, again=True)
    access.set_role_reasons("operator", "always", reason="the auditors ask for it")
    before = state(stage)
    with pytest.raises(ReasonRequired, match=r"host:ann does this \(retry\) in the role operator, .* say why; nothing"):
        ann.retry(stage.mine.run, again=True, reason=reason)
    assert state(stage) == before
    assert refused(stage) == [("host:ann", "retry", MINE, "ReasonRequired")]
    new = ann.retry(stage.mine.run, again=True, reason="the bank is back")
    [done] = stage.app.operations.audit.entries(limit=1)
    assert (done.who, done.reason, done.run_id) == ("host:ann", "the bank is back", new)
    access.set_role_reasons("operator", "optional")
    ann.retry(stage.mine.run, again=True)


def test_what_is_wanted_is_on_record_with_who_said_so(stage: Scene, access: Access) -> None:
    assert [(each.role, each.reasons) for each in access.role_reasons()] == [
        ("operator", "optional"),
        ("admin", "optional"),
    ]
    access.set_role_reasons("admin", "always", reason="the auditors ask for it")
    operator, admin = access.role_reasons()
    assert (operator.reasons, admin.reasons, admin.set_by) == ("optional", "always", "root")
    assert admin.set_at is not None
    [entry] = stage.app.operations.audit.entries(limit=1)
    assert (entry.act, entry.reason) == ("change access", "the auditors ask for it")
    assert entry.detail == {"what": "reasons", "of": "admin", "change": "always"}


@pytest.mark.parametrize("kind", ["sqlite"])  # the statements are those of the tests above
def test_permissions_on_record_count_as_those_of_the_host_do(stage: Scene, access: Access) -> None:
    access.give("proxy:bob", "operator", jobs=[MINE])
    access.set_role_reasons("operator", "always")
    bob = stage.authentication.by_proxy("bob")
    with pytest.raises(ReasonRequired):
        bob.trigger(MINE, again=True)
    access.give("proxy:bob", "admin", jobs=[MINE])
    bob.trigger(MINE, again=True)


@pytest.mark.parametrize("kind", ["sqlite"])  # the statements are those of the tests above
def test_the_role_on_the_job_counts_and_its_parts_belong_to_it(stage: Scene, access: Access) -> None:
    access.set_role_reasons("operator", "always")
    ann = stage.as_roles({MINE: "operator", "Settle": "admin"})
    ann.trigger("Settle", again=True)
    for job in (MINE, PIECE):
        assert ann.must_say(HumanAct.TRIGGER, job)
        with pytest.raises(ReasonRequired):
            ann.trigger(job, again=True)
    assert not ann.must_say(HumanAct.TRIGGER, "Settle")
    assert not ann.must_say(HumanAct.LOOK, MINE)
    both = stage.as_roles({ALL_JOBS: "admin", MINE: "operator"})
    both.trigger(MINE, again=True)


def test_reprocess_of_several_jobs_needs_one_if_any_of_them_does(stage: Scene, access: Access) -> None:
    access.set_role_reasons("admin", "always")
    ann = stage.as_roles({ALL_JOBS: "operator", MINE: "admin"})
    before = state(stage)
    for job in (None, MINE):
        with pytest.raises(ReasonRequired):
            ann.reprocess(job=job)
    assert state(stage) == before
    assert [each.old_id for each in ann.reprocess(job="settle-eu")] == [stage.others["settle-eu"].run]
    assert ann.reprocess(reason="the bank is back")


@pytest.mark.parametrize("kind", ["sqlite"])  # the statements are those of the tests above
def test_what_may_not_be_seen_or_done_is_refused_as_before(stage: Scene, access: Access) -> None:
    access.set_role_reasons("operator", "always")
    ann = stage.as_roles({MINE: "operator", "settle-eu": "viewer"})
    for run in (stage.others["Settle"].run, NOTHING.run):
        with pytest.raises(NoSuchRun):
            ann.cancel(run)
    with pytest.raises(NotAllowed, match="needs the role operator") as caught:
        ann.cancel(stage.others["settle-eu"].run)
    assert not isinstance(caught.value, ReasonRequired)


@pytest.mark.parametrize("kind", ["sqlite"])  # the statements are those of the tests above
def test_one_who_reaches_the_database_is_not_bounded(stage: Scene, access: Access) -> None:
    access.set_role_reasons("admin", "always")
    access.set_role_reasons("operator", "always")
    stage.app.operations.trigger(MINE, by="ann", again=True)


@pytest.mark.parametrize(
    "reason",
    [
        None,
        "",
        " \t\n",
        "\u00a0",
        "\u200b\u200d",
        "\ufeff",
        "\u2800",
        "\u3164",
        "\u00ad",
        "\u034f",
        "\x00\x1b",
        "\u202e",
    ],
)
def test_nothing_that_can_be_seen_is_no_reason(reason: str | None) -> None:
    assert not says_something(reason)
    assert all(says_something(f"{reason or ''}{each}") for each in "가x7!\U0001fae8\ue000")


@pytest.mark.parametrize("kind", ["sqlite"])
class TestOnOneDatabase:
    """The checks are the same code."""

    @pytest.mark.parametrize("name", [each for each in ACTS if not each.startswith(IN_CODE)])
    def test_every_act_is_refused_without_a_reason_and_not_for_that_with_one(
        self, stage: Scene, access: Access, name: str
    ) -> None:
        act = ACTS[name]
        access.set_role_reasons("operator", "always")
        access.set_role_reasons("admin", "always")
        ann = stage.as_roles({ALL_JOBS if act in WITHOUT_JOB else MINE: NEEDS[act].value})
        if name == "concerns.unacknowledge":
            CASES["concerns.acknowledge"](ann, stage.mine)
        before = state(stage)
        with pytest.raises(ReasonRequired):
            CASES[name](Silent(ann), stage.mine)
        assert state(stage) == before
        refusal = ("host:ann", act.value, "ReasonRequired")
        assert [(who, what, why) for who, what, _, why in refused(stage)] == [refusal]
        with suppress(NotInLedger, IllegalMove, ConfigurationError):  # what is not there, or not possible now
            CASES[name](Silent(ann, "because"), stage.mine)
        assert [each[-1] for each in refused(stage)].count("ReasonRequired") == 1

    def test_invisible_reason_is_none_wherever_one_is_wanted(self, stage: Scene, access: Access) -> None:
        access.set_role_reasons("operator", "always")
        with pytest.raises(ReasonRequired):
            stage.of(**{MINE: "operator"}).trigger(MINE, again=True, reason="\u200b")
        root, before = stage.as_roles({ALL_JOBS: "admin"}), state(stage)
        for act in (root.restored.accept, root.restored.as_copy, partial(root.pauses.pause, None)):
            with pytest.raises(InvalidParameters, match=r"say why|needs a reason"):
                act(reason="\u200b")
        assert state(stage) == before

    def test_row_that_somebody_deleted_is_made_again(self, stage: Scene, access: Access) -> None:
        table, ledger = stage.app.ledger.tables.operating["role"], stage.app.ledger
        ledger.write(lambda cursor: ledger.change(cursor, table.delete()))
        access.set_role_reasons("operator", "always")
        access.set_role_reasons("operator", "always")
        assert [(each.role, each.reasons, each.set_by) for each in access.role_reasons()] == [
            ("operator", "always", "root"), ("admin", "optional", None),
        ]  # fmt: skip

    def test_looking_needs_none(self, stage: Scene, access: Access) -> None:
        access.set_role_reasons("admin", "always")
        ann = stage.as_roles({ALL_JOBS: "admin"})
        for name, act in RIGHTS.items():
            if name not in ACTS and act is not None and not name.startswith(IN_CODE):
                CASES[name](ann, stage.mine)

    @pytest.mark.parametrize(("role", "reasons"), [("viewer", "always"), ("root", "always"), ("admin", "sometimes")])
    def test_what_means_nothing_is_refused(self, stage: Scene, access: Access, role: str, reasons: str) -> None:
        with pytest.raises(InvalidParameters):
            access.set_role_reasons(role, reasons)
        assert {each.reasons for each in access.role_reasons()} == {"optional"}

    def test_only_an_admin_of_all_jobs_changes_it(self, stage: Scene) -> None:
        ann = stage.as_roles({ALL_JOBS: "operator", MINE: "admin"})
        with pytest.raises(NotAllowed, match="needs the role admin"):
            ann.access.set_role_reasons("operator", "optional", reason="why")

    def test_shared_parts_of_pages_differ_when_it_changes(self, stage: Scene, access: Access) -> None:
        before = stage.of(**{MINE: "operator"}).scope_key
        access.set_role_reasons("operator", "always")
        again = stage.authentication.by_host(HostPrincipal("bob", {MINE: "operator"}))
        assert again.scope_key != before

    def test_repeated_request_has_its_answer_although_a_reason_is_wanted_since(
        self, stage: Scene, access: Access
    ) -> None:
        ann = stage.of(**{MINE: "operator"})
        request = KeyedRequest("k", "POST /trigger", "h")
        act = KeyedAct(HumanAct.TRIGGER, lambda: ann.trigger(MINE, again=True), str, job=MINE)
        first = ann.once(request, act)
        access.set_role_reasons("operator", "always")
        assert ann.once(request, act).text == first.text
        with pytest.raises(ReasonRequired):
            ann.once(request._replace(key="l"), act)

    def test_unknown_word_of_a_newer_version_wants_a_reason(self, stage: Scene, access: Access) -> None:
        access.set_role_reasons("operator", "always")
        table, ledger = stage.app.ledger.tables.operating["role"], stage.app.ledger
        ledger.write(lambda cursor: ledger.change(cursor, table.update().values(reasons="coded")))
        with pytest.raises(ReasonRequired):
            stage.of(**{MINE: "operator"}).trigger(MINE, again=True)


class Silent:
    """Operations whose calls give this reason, whatever the caller says; a note is the reason of what one knows of."""

    def __init__(self, inner: Any, reason: str = " ") -> None:
        self._inner, self._reason = inner, reason

    def __getattr__(self, name: str) -> Any:
        found = attrgetter(name)(self._inner)
        if not inspect.ismethod(found):
            return Silent(found, self._reason)
        taken = {"reason", "note"} & set(inspect.signature(found).parameters)
        assert taken, f"{name} takes no reason"

        def call(*values: Any, **more: Any) -> Any:
            return found(*values, **{**more, **dict.fromkeys(taken, self._reason)})

        return call
