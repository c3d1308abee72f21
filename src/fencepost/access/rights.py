"""The right that each method of `Authorized` needs: one table, which a test compares with what the methods do.

`LOOK` methods return what concerns the jobs that the caller sees. None: it says nothing about jobs, and every caller
that is known may ask. For acts of `fencepost.core.rights.WITHOUT_JOB`, the role has to be given for all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.core.rights import HumanAct

RIGHTS: Mapping[str, HumanAct | None] = {
    "principal": None,
    "caller": None,
    "scope_key": None,
    "check": None,
    "may": None,
    "once": None,
    "now": None,
    "held_because": None,
    "why": HumanAct.LOOK,
    "runs": HumanAct.LOOK,
    "run": HumanAct.LOOK,
    "waits": HumanAct.LOOK,
    "waits_of": HumanAct.LOOK,
    "repeated": HumanAct.LOOK,
    "attempts": HumanAct.LOOK,
    "log": HumanAct.LOOK,
    "parts": HumanAct.LOOK,
    "nodes": HumanAct.LOOK,
    "leader": HumanAct.LOOK,
    "jobs": HumanAct.LOOK,
    "job": HumanAct.LOOK,
    "journal": HumanAct.LOOK,
    "read_params": HumanAct.LOOK,
    "would_backfill": HumanAct.LOOK,
    "trigger": HumanAct.TRIGGER,
    "backfill": HumanAct.BACKFILL,
    "cancel": HumanAct.CANCEL,
    "retry": HumanAct.RETRY,
    "release": HumanAct.RELEASE_RUN,
    "reprocess": HumanAct.REPROCESS,
    "rename_job": HumanAct.RENAME_JOB,
    "forget_job": HumanAct.FORGET_JOB,
    "schedules.get": HumanAct.LOOK,
    "schedules.list": HumanAct.LOOK,
    "schedules.iterate": HumanAct.LOOK,
    "schedules.preview": HumanAct.LOOK,
    "schedules.put": HumanAct.PUT_SCHEDULE,
    "schedules.pause": HumanAct.PAUSE_SCHEDULE,
    "schedules.resume": HumanAct.RESUME_SCHEDULE,
    "schedules.delete": HumanAct.DELETE_SCHEDULE,
    "letters.list": HumanAct.LOOK,
    "letters.iterate": HumanAct.LOOK,
    "letters.show": HumanAct.LOOK,
    "letters.replay": HumanAct.REPLAY_LETTERS,
    "letters.drop": HumanAct.DROP_LETTERS,
    "bulk.show": HumanAct.LOOK,
    "bulk.again": HumanAct.REPEAT_BULK,
    "bulk.forget": HumanAct.FORGET_BULK,
    "audit.entries": HumanAct.READ_AUDIT,
    "audit.anchor": HumanAct.READ_AUDIT,
    "audit.verify": HumanAct.READ_AUDIT,
    "audit.export": HumanAct.READ_AUDIT,
    "audit.prune": HumanAct.PRUNE_AUDIT,
    "restored.standing": HumanAct.LOOK,
    "restored.accept": HumanAct.ACCEPT_LEDGER,
    "restored.as_copy": HumanAct.ACCEPT_LEDGER,
    "access.accounts": HumanAct.CHANGE_ACCESS,
    "access.put_account": HumanAct.CHANGE_ACCESS,
    "access.add_account": HumanAct.CHANGE_ACCESS,
    "access.set_password": HumanAct.CHANGE_ACCESS,
    "access.disable_account": HumanAct.CHANGE_ACCESS,
    "access.enable_account": HumanAct.CHANGE_ACCESS,
    "access.remove_account": HumanAct.CHANGE_ACCESS,
    "access.permissions": HumanAct.CHANGE_ACCESS,
    "access.give": HumanAct.CHANGE_ACCESS,
    "access.take": HumanAct.CHANGE_ACCESS,
    "access.api_tokens": HumanAct.CHANGE_ACCESS,
    "access.add_api_token": HumanAct.CHANGE_ACCESS,
    "access.revoke_api_token": HumanAct.CHANGE_ACCESS,
    "access.logins": HumanAct.CHANGE_ACCESS,
    "access.end_logins": HumanAct.CHANGE_ACCESS,
}

NEED_ALL_JOBS = frozenset({"leader", "restored.standing"})
"""Methods that look at what is no single job's: the role has to be given for all jobs."""
