"""Who may do what: roles, the role that each act needs, and the jobs that a role is given for. Pure rules.

::

    viewer      looks: runs, logs, schedules, nodes
    operator    also acts on runs and schedules: trigger, retry, cancel, pause, back-fill
    admin       also does what concerns others or cannot be undone: forget a job, release a lock, change permissions

A permission is a role and an exact job name, or all jobs. Names are compared whole: ``settle`` says nothing about
``settle-eu``. The parts of a bulk job belong to it because the job declares them, never because of their names.

An administrator can want a reason of a role: then those who act in it have to say why, for every act.

**Promises.** A `Scope` answers every question of rights. An act that is not in `NEEDS` is never allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fencepost.core.audit import PRUNED
from fencepost.core.noted import says_something
from fencepost.errors import NotAllowed, ReasonRequired

ALL_JOBS = ""
"""What stands for all jobs in a permission. No job can have this name."""


class Role(StrEnum):
    """What a permission allows. Each role includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether this role allows everything that `other` does."""
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


class HumanAct(StrEnum):
    """What people do, as the audit names it. The words never change, because entries with them are kept."""

    LOOK = "look"
    EXPORT = "export"

    TRIGGER = "trigger"
    RETRY = "retry"
    CANCEL = "cancel"
    RELEASE_RUN = "release run"
    REPROCESS = "reprocess"
    BACKFILL = "backfill"
    PAUSE_SCHEDULE = "pause schedule"
    RESUME_SCHEDULE = "resume schedule"
    PUT_SCHEDULE = "put schedule"
    DELETE_SCHEDULE = "delete schedule"
    ACKNOWLEDGE = "acknowledge"
    REPLAY_LETTERS = "replay letters"
    DROP_LETTERS = "drop letters"
    REPEAT_BULK = "repeat bulk work"
    FORGET_BULK = "forget bulk work"

    FORGET_JOB = "forget job"
    RENAME_JOB = "rename job"
    PAUSE_ALL = "pause all"
    RESUME_ALL = "resume all"
    DRAIN_NODE = "drain node"
    RELEASE_LOCK = "release lock"
    ACCEPT_LEDGER = "accept ledger"
    READ_AUDIT = "read audit"
    PRUNE_AUDIT = PRUNED
    CHANGE_ACCESS = "change access"


NEEDS: Mapping[HumanAct, Role] = {
    HumanAct.LOOK: Role.VIEWER,
    HumanAct.EXPORT: Role.VIEWER,
    HumanAct.TRIGGER: Role.OPERATOR,
    HumanAct.RETRY: Role.OPERATOR,
    HumanAct.CANCEL: Role.OPERATOR,
    HumanAct.RELEASE_RUN: Role.OPERATOR,
    HumanAct.REPROCESS: Role.OPERATOR,
    HumanAct.BACKFILL: Role.OPERATOR,
    HumanAct.PAUSE_SCHEDULE: Role.OPERATOR,
    HumanAct.RESUME_SCHEDULE: Role.OPERATOR,
    HumanAct.PUT_SCHEDULE: Role.OPERATOR,
    HumanAct.DELETE_SCHEDULE: Role.OPERATOR,
    HumanAct.ACKNOWLEDGE: Role.OPERATOR,
    HumanAct.REPLAY_LETTERS: Role.OPERATOR,
    HumanAct.DROP_LETTERS: Role.ADMIN,
    HumanAct.REPEAT_BULK: Role.OPERATOR,
    HumanAct.FORGET_BULK: Role.ADMIN,
    HumanAct.FORGET_JOB: Role.ADMIN,
    HumanAct.RENAME_JOB: Role.ADMIN,
    HumanAct.PAUSE_ALL: Role.ADMIN,
    HumanAct.RESUME_ALL: Role.ADMIN,
    HumanAct.DRAIN_NODE: Role.ADMIN,
    HumanAct.RELEASE_LOCK: Role.ADMIN,
    HumanAct.ACCEPT_LEDGER: Role.ADMIN,
    HumanAct.READ_AUDIT: Role.ADMIN,
    HumanAct.PRUNE_AUDIT: Role.ADMIN,
    HumanAct.CHANGE_ACCESS: Role.ADMIN,
}
"""The role that each act needs, on the job that it concerns."""

WITHOUT_JOB = frozenset(
    {
        HumanAct.RENAME_JOB,
        HumanAct.PAUSE_ALL,
        HumanAct.RESUME_ALL,
        HumanAct.DRAIN_NODE,
        HumanAct.RELEASE_LOCK,
        HumanAct.ACCEPT_LEDGER,
        HumanAct.READ_AUDIT,
        HumanAct.PRUNE_AUDIT,
        HumanAct.CHANGE_ACCESS,
    }
)
"""Acts that concern no single job: the role has to be given for all jobs. Renaming concerns two names."""

LOOKS = frozenset({HumanAct.LOOK, HumanAct.EXPORT, HumanAct.READ_AUDIT})
"""What changes nothing: nobody has to say why."""

ANOTHER_JOB = "another job"
"""What stands for the name of a job outside of a scope."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who acts, and how that person or program was identified. All of it goes into the audit."""

    name: str
    how: str = "direct"  # login, api token, proxy header, host application; direct: a holder of the database password
    address: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """A caller, and the role that it has for each job.

    Those who act in a role of `reasons_of` have to say why, for every act. `is_silent`: no reason was given.
    """

    caller: Caller
    roles: Mapping[str, Role] = field(default_factory=dict)
    is_direct: bool = False  # made by `direct`: the name of the person is the one given with each act
    reasons_of: frozenset[Role] = frozenset()
    is_silent: bool = False

    @staticmethod
    def direct(name: str = "direct") -> Scope:
        """Return the scope of one who reaches the database itself: everything is allowed, and says so in the audit."""
        return Scope(Caller(name), {ALL_JOBS: Role.ADMIN}, is_direct=True)

    def role_on(self, job: str | None) -> Role | None:
        """Return the highest role for a job, or for all jobs if `job` is None; None if there is none."""
        given = [self.roles.get(ALL_JOBS), None if job is None else self.roles.get(job)]
        return max((role for role in given if role is not None), key=lambda role: _RANKS[role], default=None)

    def may(self, act: HumanAct, job: str | None = None) -> bool:
        """Whether `act` is allowed, on `job` where it concerns one."""
        role = self.role_on(None if act in WITHOUT_JOB else job)
        return role is not None and role.includes(NEEDS[act])

    def sees(self, job: str) -> bool:
        """Whether the caller may know of `job` at all."""
        return self.may(HumanAct.LOOK, job)

    @property
    def visible(self) -> frozenset[str] | None:
        """The jobs that the caller may know of; None for all."""
        return self.jobs_for(HumanAct.LOOK)

    def named(self, job: str) -> str:
        """Return the name of a job as the caller may read it."""
        return job if self.sees(job) else ANOTHER_JOB

    def must_say(self, act: HumanAct, job: str | None = None) -> bool:
        """Whether the caller's role for this has to give a reason. Of several roles the highest counts."""
        return act not in LOOKS and self.role_on(None if act in WITHOUT_JOB else job) in self.reasons_of

    def saying(self, reason: str | None) -> Scope:
        """Return this scope for one act, for which this reason was given."""
        return replace(self, is_silent=not says_something(reason))

    def require(self, act: HumanAct, job: str | None = None) -> None:
        """Raise `NotAllowed`, naming the role that is missing, unless `act` is allowed. Check first that it is seen.

        Raise `ReasonRequired` if it is allowed with a reason only, and none was given.
        """
        if not self.may(act, job):
            where = "all jobs" if act in WITHOUT_JOB or job is None else f"job {job!r}"
            raise NotAllowed(
                f"{self.caller.name} may not do this ({act}): it needs the role {NEEDS[act]} for {where}",
                act=act,
                job=job,
            )
        if self.is_silent and self.must_say(act, job):
            role = self.role_on(None if act in WITHOUT_JOB else job)
            raise ReasonRequired(
                f"{self.caller.name} does this ({act}) in the role {role}, which has to give a reason for every act: "
                "say why; nothing was done",
                act=act,
                job=job,
            )

    def jobs_for(self, act: HumanAct) -> frozenset[str] | None:
        """Return the jobs on which `act` is allowed; None for all of them. The empty set is none at all."""
        if self.may(act):
            return None
        if act in WITHOUT_JOB:
            return frozenset()
        return frozenset(job for job in self.roles if job != ALL_JOBS and self.may(act, job))

    def with_parts(self, parents: Iterable[tuple[str, str]]) -> Scope:
        """Return this scope with the roles of jobs given also for their parts: pairs of a part and its parent.

        A part of a part has its role from the first: a chain of any length is followed, and a circle ends.
        """
        parent_of = dict(parents)
        roles = dict(self.roles)
        for part in parent_of:
            role = self._inherited(part, parent_of)
            if role is not None:
                roles[part] = role
        return replace(self, roles=roles)

    def _inherited(self, part: str, parent_of: Mapping[str, str]) -> Role | None:
        found: list[Role] = []
        seen: set[str] = set()
        here: str | None = part
        while here is not None and here not in seen:
            seen.add(here)
            if here in self.roles and here != ALL_JOBS:
                found.append(self.roles[here])
            here = parent_of.get(here)
        return max(found, key=lambda role: _RANKS[role], default=None)


def permissions_of(caller: Caller, given: Iterable[tuple[str, str]]) -> Scope:
    """Return the scope that pairs of a job and a role give; an unknown role, of a newer version, gives nothing."""
    known = {role.value for role in Role}
    return Scope(caller, {job: Role(role) for job, role in given if role in known})
