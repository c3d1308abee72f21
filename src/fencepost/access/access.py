"""Accounts, permissions, API tokens and logins, as people change them. Every change leaves an entry in the audit.

Used by the command line (whoever has the database's password may do all of this) and by the pages and the REST
interface, where a `Scope` says who asks.

**Promises.** What a change did and its entry commit together. A secret is returned once, by what makes it, and is kept
as a hash; it is in no entry, message or log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, get_args

from fencepost.access import identity, passwords
from fencepost.core.duration import Duration, seconds
from fencepost.core.identity import job_name
from fencepost.core.rights import ALL_JOBS, Caller, HumanAct, Role, Scope
from fencepost.core.tick import instant, spelled_us
from fencepost.core.words import ReasonWord
from fencepost.errors import InvalidName, InvalidParameters, NoSuchAccount, NotAllowed
from fencepost.ledger import accounts, auditing, logins
from fencepost.ledger.accounts import Account, Permission, RoleReasons
from fencepost.ledger.auditing import AuditAct
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.jobs import jobs as known_jobs
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.logins import ApiToken, Login

T = TypeVar("T")

LOGIN_LASTS_S = 12 * 3600.0  # a working day: then the password is asked for again
LOGIN_IDLE_S = 2 * 3600.0  # an abandoned browser
LONGEST_TOKEN_S = 366 * 24 * 3600.0  # a token that nobody renews for a year is one that nobody remembers
TOKEN_MARK = "fp_"  # noqa: S105 - so that scanners of repositories recognize a token that was committed
_NAME = re.compile(r"[\w.@+\-]{1,100}")
_PRINCIPALS = ("user:", "token:", "proxy:", "host:")


@dataclass(frozen=True, slots=True)
class NewApiToken:
    """An API token as it is shown once: `secret` cannot be had again."""

    id: str
    name: str
    secret: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"NewApiToken(id={self.id!r}, name={self.name!r}, expires_at={self.expires_at!r})"


class Access:
    """Changes to who may do what, in the name of one caller."""

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        """HumanAct on `ledger` as `scope` allows."""
        self._ledger = ledger
        self._scope = scope

    # -- accounts ----------------------------------------------------------------------------------------------------

    def accounts(self) -> list[Account]:
        """Return the local accounts, by name."""
        self._require()
        return accounts.accounts(self._ledger)

    def put_account(self, name: str, password: str | None, *, reason: str | None = None) -> bool:
        """Make an account, or give one another password; return whether it is new. Its logins end."""
        return self._put_account(name, password, reason=reason)

    def add_account(
        self,
        name: str,
        password: str | None,
        *,
        role: str | None = None,
        jobs: Sequence[str] = (ALL_JOBS,),
        reason: str | None = None,
    ) -> None:
        """Make an account, with a role on these jobs if there is one; refuse a name that is taken."""

        def check(is_new: bool, cursor: Cursor) -> None:
            if not is_new:
                raise name_taken(name)
            for job in _job_names(jobs) if role is not None else ():
                accounts.give(self._ledger, cursor, f"user:{name}", job, role_named(role or ""), by=by)

        by = self._scope.caller.name
        detail = {} if role is None else {"role": role_named(role).value, "jobs": _shown(jobs)}
        self._put_account(name, password, reason=reason, check=check, detail=detail)

    def set_password(self, name: str, password: str | None, *, reason: str | None = None) -> None:
        """Give an account another password, or raise `NoSuchAccount`. Its logins end."""

        def check(is_new: bool, _: Cursor) -> None:
            if is_new:
                raise NoSuchAccount(name)

        self._put_account(name, password, reason=reason, check=check)

    def _put_account(
        self,
        name: str,
        password: str | None,
        *,
        reason: str | None,
        check: Callable[[bool, Cursor], None] = lambda _new, _cursor: None,
        detail: Mapping[str, Any] | None = None,
    ) -> bool:
        self._require()
        hashed = None if password is None else passwords.hash_password(password)
        by = self._scope.caller.name

        def work(cursor: Cursor) -> bool:
            is_new = accounts.put_account(self._ledger, cursor, account_name(name), hashed, by=by)
            check(is_new, cursor)
            return is_new

        def said(is_new: bool) -> str:
            return "made" if is_new else "password"

        return self._change(work, what="account", of=name, reason=reason, said=said, detail=detail)

    def disable_account(self, name: str, *, reason: str | None = None) -> None:
        """Let nobody log in as `name` any more, and end its logins."""
        self._change(self._call(accounts.disable_account, name), what="account", of=name, reason=reason, as_="disabled")

    def enable_account(self, name: str, *, reason: str | None = None) -> None:
        """Let `name` log in again."""
        self._change(self._call(accounts.enable_account, name), what="account", of=name, reason=reason, as_="enabled")

    def remove_account(self, name: str, *, reason: str | None = None) -> None:
        """Remove an account with its permissions and logins."""
        self._change(self._call(accounts.remove_account, name), what="account", of=name, reason=reason, as_="removed")

    # -- permissions -------------------------------------------------------------------------------------------------

    def permissions(self, principal: str | None = None) -> list[Permission]:
        """Return who has which role on which job; raise for a principal that nobody can be."""
        self._require()
        found = accounts.permissions(self._ledger, principal=principal)
        if principal is not None and not found:
            self._principal(principal)
        return found

    def give(self, principal: str, role: str, *, jobs: Sequence[str] = (ALL_JOBS,), reason: str | None = None) -> None:
        """Give a principal a role on these jobs; by default on all of them."""
        self._require()  # before we look whether there is such an account
        whom, what, by = self._principal(principal), role_named(role), self._scope.caller.name
        named = _job_names(jobs)

        def work(cursor: Cursor) -> None:
            for job in named:
                accounts.give(self._ledger, cursor, whom, job, what, by=by)

        detail = {"role": what.value, "jobs": _shown(jobs)}
        self._change(work, what="permission", of=whom, reason=reason, as_="given", detail=detail)

    def take(self, principal: str, *, jobs: Sequence[str] | None = None, reason: str | None = None) -> int:
        """Take away a principal's roles on these jobs, or with None all of them; return how many there were.

        Where there were none, nothing is done, and the audit has no entry. Raise for a principal that nobody can be.
        """

        def work(cursor: Cursor) -> int:
            wanted: Sequence[str | None] = [None] if jobs is None else jobs
            return sum(accounts.take(self._ledger, cursor, principal, each) for each in wanted)

        def said(count: int) -> str | None:
            return "taken" if count else None

        detail = {"jobs": None if jobs is None else _shown(jobs)}
        count = self._change(work, what="permission", of=principal, reason=reason, said=said, detail=detail)
        if not count:
            self._principal(principal)
        return count

    def role_reasons(self) -> list[RoleReasons]:
        """Return of which roles a reason is wanted for every act, with those of which none is wanted."""
        self._require()
        return accounts.role_reasons(self._ledger)

    def set_role_reasons(self, role: str, reasons: str, *, reason: str | None = None) -> None:
        """Want a reason for every act of those who act in a role (``always``), or no longer want one (``optional``)."""
        self._require()
        what, by = role_named(role), self._scope.caller.name
        if not what.includes(Role.OPERATOR):
            raise InvalidParameters("a viewer only looks, which needs no reason: say operator or admin")
        if reasons not in get_args(ReasonWord):
            raise InvalidParameters(f"{reasons!r} is not known; there are {', '.join(get_args(ReasonWord))}")
        work = self._call(accounts.set_role_reasons, what, reasons, by)
        self._change(work, what="reasons", of=what.value, reason=reason, as_=reasons)

    def jobs_not_on_record(self, names: Sequence[str]) -> list[str]:
        """Return which of these jobs no node has registered, in their order."""
        self._require()
        known = {row.name for row in known_jobs(self._ledger, names=names)}
        return [name for name in names if name != ALL_JOBS and name not in known]

    # -- API tokens --------------------------------------------------------------------------------------------------

    def api_tokens(self, *, ended: bool = False) -> list[ApiToken]:
        """Return API tokens, the newest first; with `ended` also those that expired or were revoked."""
        self._require()
        return logins.api_tokens(self._ledger, ended=ended)

    def add_api_token(
        self,
        name: str,
        role: str,
        *,
        expires_in: Duration,
        jobs: Sequence[str] = (ALL_JOBS,),
        reason: str | None = None,
    ) -> NewApiToken:
        """Make an API token with a role on these jobs. It ends after `expires_in`, a year and a day at most."""
        self._require()
        lasts_s = seconds(expires_in, what="expires_in")
        if not 0 < lasts_s <= LONGEST_TOKEN_S:
            raise InvalidParameters("an API token lasts up to 366 days: say when it expires, and make another one then")
        what, by, runtime = role_named(role), self._scope.caller.name, self._ledger.runtime
        token_id, secret = runtime.new_id()[:16], f"{TOKEN_MARK}{runtime.new_id()}{runtime.new_id()}"
        expires_at = self._ledger.now_us() + round(lasts_s * 1_000_000)

        def work(cursor: Cursor) -> None:
            logins.add_api_token(
                self._ledger, cursor, token_id, secret, name=account_name(name), by=by, expires_at=expires_at
            )
            for job in _job_names(jobs):
                accounts.give(self._ledger, cursor, f"token:{token_id}", job, what, by=by)

        detail = {"name": name, "role": what.value, "jobs": _shown(jobs), "expires_at": spelled_us(expires_at)}
        self._change(work, what="API token", of=f"token:{token_id}", reason=reason, as_="made", detail=detail)
        return NewApiToken(token_id, name, secret, instant(expires_at))

    def revoke_api_token(self, token_id: str, *, reason: str | None = None) -> bool:
        """End an API token and remove its permissions; return whether it was alive."""

        def work(cursor: Cursor) -> bool:
            was_alive = logins.revoke_api_token(self._ledger, cursor, token_id)
            accounts.take(self._ledger, cursor, f"token:{token_id}")
            return was_alive

        return self._change(work, what="API token", of=f"token:{token_id}", reason=reason, as_="revoked")

    # -- logins ------------------------------------------------------------------------------------------------------

    def logins(self) -> list[Login]:
        """Return who is logged in, the newest first."""
        self._require()
        return logins.logins(self._ledger)

    def end_logins(self, principal: str, *, reason: str | None = None) -> int:
        """End all logins of a principal; return how many there were."""
        work = self._call(accounts.end_logins, principal)
        return int(self._change(work, what="logins", of=principal, reason=reason, as_="ended"))

    # -- small things ------------------------------------------------------------------------------------------------

    def _principal(self, principal: str) -> str:
        """Refuse a principal that nobody can be: it would stand in the list and mean nothing."""
        kind, colon, name = principal.partition(":")
        if not colon or f"{kind}:" not in _PRINCIPALS or not name:
            raise InvalidName(f"{principal!r} is not a principal: say user:NAME, token:ID, proxy:NAME or host:NAME")
        if kind in ("proxy", "host"):
            account_name(name)
        if kind == "user" and accounts.account(self._ledger, name) is None:
            raise NoSuchAccount(name)
        return principal

    def _call(self, call: Callable[..., T], *values: Any) -> Callable[[Cursor], T]:
        return lambda cursor: call(self._ledger, cursor, *values)

    def _require(self) -> None:
        if not self._scope.may(HumanAct.CHANGE_ACCESS):
            raise NotAllowed(
                f"{self._scope.caller.name} may not see or change access: that needs the role admin for all jobs"
            )

    def _change(
        self,
        work: Callable[[Cursor], T],
        *,
        what: str,
        of: str,
        reason: str | None,
        as_: str = "",
        said: Callable[[T], str | None] | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> T:
        """Do the work, and record it in the audit, unless `said` says that nothing was done."""
        self._require()
        self._scope.require(HumanAct.CHANGE_ACCESS)  # also whether it wants a reason

        def audited(cursor: Cursor) -> T:
            result = work(cursor)
            done = as_ if said is None else said(result)
            if done is None:
                return result
            more = {"what": what, "of": of, "change": done, **(detail or {})}
            act = AuditAct(self._scope.caller, HumanAct.CHANGE_ACCESS, reason=reason, detail=more)
            auditing.record(self._ledger, cursor, act)
            return result

        return self._ledger.write(audited)


def account_name(name: str) -> str:
    """Return a name that an account or API token can have, or refuse it."""
    if not _NAME.fullmatch(name):
        raise InvalidName(f"{name!r} is not a valid name: 1 to 100 letters, digits, and . @ + - _")
    return name


def name_taken(name: str) -> InvalidName:
    """Return the refusal of an account that is there already."""
    return InvalidName(f"there is an account {name!r} already; to give it a password: users password {name}")


def role_named(role: str) -> Role:
    """Return a role by its name."""
    try:
        return Role(role)
    except ValueError:
        raise InvalidParameters(f"{role!r} is not a role: viewer, operator or admin") from None


def scope_of(ledger: Ledger, principal: str, caller: Caller) -> Scope:
    """Return what a principal may do now, parts of bulk jobs included."""
    return identity.scope_of(ledger, identity.Known(principal, caller.how), caller)


def _job_names(jobs_: Sequence[str]) -> list[str]:
    """Return names that jobs can have. They are compared whole, so a permission for any other would mean nothing."""
    if isinstance(jobs_, str) or not jobs_:
        raise InvalidParameters("give a list of at least one job, or leave it out for all jobs")
    return [job if job == ALL_JOBS else job_name(job) for job in jobs_]


def _shown(jobs_: Sequence[str]) -> list[str] | str:
    return "all jobs" if ALL_JOBS in jobs_ else sorted(jobs_)
