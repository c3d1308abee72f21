"""Rights: exact names, roles that include each other, and nothing that is allowed by accident."""

import pytest

from fencepost.core.rights import ALL_JOBS, NEEDS, WITHOUT_JOB, Caller, HumanAct, Role, Scope, permissions_of

ANN = Caller("ann", how="login")


def scope(**roles: str) -> Scope:
    return permissions_of(ANN, [(ALL_JOBS if job == "everything" else job, role) for job, role in roles.items()])


def test_every_act_needs_a_role():
    assert set(NEEDS) == set(HumanAct)


def test_nobody_may_do_anything_without_a_permission():
    assert [act for act in HumanAct if scope().may(act, "settle") or scope().jobs_for(act) != frozenset()] == []


@pytest.mark.parametrize(
    ("role", "act", "allowed"),
    [
        ("viewer", HumanAct.LOOK, True),
        ("viewer", HumanAct.RETRY, False),
        ("operator", HumanAct.LOOK, True),
        ("operator", HumanAct.RETRY, True),
        ("operator", HumanAct.FORGET_JOB, False),
        ("admin", HumanAct.RETRY, True),
        ("admin", HumanAct.FORGET_JOB, True),
    ],
)
def test_a_role_includes_those_before_it(role, act, allowed):
    assert scope(settle=role).may(act, "settle") is allowed


@pytest.mark.parametrize("other", ["settl", "settle2", "Settle", "settle/part", "", "*", "settle "])
def test_a_permission_is_for_the_exact_name(other):
    assert scope(settle="admin").may(HumanAct.LOOK, "settle")
    assert not scope(settle="admin").may(HumanAct.LOOK, other or None)


@pytest.mark.parametrize("act", sorted(WITHOUT_JOB))
def test_what_concerns_no_single_job_needs_the_role_for_all_jobs(act):
    assert not scope(settle="admin").may(act, "settle")
    assert not scope(settle="admin").may(act)
    assert scope(settle="admin").jobs_for(act) == frozenset()
    assert scope(everything="admin").may(act)


def test_the_higher_of_two_roles_counts():
    mixed = scope(everything="viewer", settle="operator")
    assert mixed.may(HumanAct.RETRY, "settle")
    assert not mixed.may(HumanAct.RETRY, "report")
    assert mixed.jobs_for(HumanAct.LOOK) is None
    assert mixed.jobs_for(HumanAct.RETRY) == {"settle"}
    assert scope(everything="operator", settle="viewer").may(HumanAct.RETRY, "settle")


def test_parts_belong_to_their_declared_parent_alone():
    here = scope(settle="operator").with_parts(
        [("settle/part", "settle"), ("settle/replay", "settle/part"), ("a", "b")]
    )
    assert here.jobs_for(HumanAct.RETRY) == {"settle", "settle/part", "settle/replay"}
    assert not here.may(HumanAct.LOOK, "settle/other")


def test_a_part_may_be_given_more_than_its_parent():
    here = permissions_of(ANN, [("settle", "viewer"), ("settle/part", "operator")]).with_parts(
        [("settle/part", "settle")]
    )
    assert here.may(HumanAct.RETRY, "settle/part")
    assert not here.may(HumanAct.RETRY, "settle")


def test_a_circle_of_parents_ends():
    here = scope(a="viewer").with_parts([("a", "b"), ("b", "c"), ("c", "a")])
    assert here.jobs_for(HumanAct.LOOK) == {"a", "b", "c"}


def test_a_role_of_a_newer_version_gives_nothing():
    assert not scope(settle="emperor").may(HumanAct.LOOK, "settle")


def test_direct_access_to_the_database_may_do_everything():
    assert all(Scope.direct("root").may(act, "settle") for act in HumanAct)
    assert Role.ADMIN.includes(Role.VIEWER)
