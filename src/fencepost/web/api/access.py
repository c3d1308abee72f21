"""Accounts, permissions, API tokens and logins. All of it needs the role of admin for all jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from fencepost.access.returned import Account, ApiToken, Login, Permission, RoleReasons
from fencepost.app.records.results import (
    AccountRecord,
    ApiTokenRecord,
    DoneRecord,
    LoginRecord,
    NewApiTokenRecord,
    PermissionRecord,
    RoleRecord,
)
from fencepost.core.rights import ALL_JOBS, HumanAct
from fencepost.core.tick import instant
from fencepost.core.words import ReasonWord
from fencepost.web.api.calls import ApiCall
from fencepost.web.api.fields import Duration, JobNames, Limit, Name, Reasoned, ReasonQuery, need_unit
from fencepost.web.api.replies import ApiReply, page
from fencepost.web.api.routes import ApiPage, ApiRoutes

ROUTES = ApiRoutes("access")
_NEEDS = HumanAct.CHANGE_ACCESS
UserName = Annotated[str, Path(min_length=1, max_length=120, description="The name of an account.", examples=["ann"])]
TokenId = Annotated[str, Path(min_length=1, max_length=32, description="The id of an API token.")]
RolePath = Annotated[str, Path(min_length=1, max_length=20, description="operator or admin.", examples=["operator"])]
After = Annotated[str, Query(max_length=160)]
Password = Annotated[str, Field(min_length=1, max_length=1_024)]
RoleName = Annotated[str, Field(max_length=20, examples=["operator"])]


class NewAccount(Reasoned):
    """An account, with a role on these jobs, or on all of them, if there is one."""

    name: Name
    password: Password
    role: RoleName | None = None
    jobs: JobNames | None = None


class NewPassword(Reasoned):
    """The new password of an account."""

    password: Password


class Give(Reasoned):
    """A role for a principal, on these jobs or on all of them."""

    principal: Name = Field(examples=["user:ann"])
    role: RoleName
    jobs: JobNames | None = None


class Take(Reasoned):
    """The roles that a principal loses: on these jobs, the one that is for all jobs, or with `everything` all."""

    principal: Name
    jobs: JobNames | None = None
    everything: bool = False


class WantReasons(Reasoned):
    """Whether a role has to give a reason for every act. `reason` is why this is changed."""

    reasons: ReasonWord


class NewToken(Reasoned):
    """An API token with a role on these jobs, or on all of them."""

    name: Name
    role: RoleName
    expires_in: Duration
    jobs: JobNames | None = None


class EndLogins(Reasoned):
    """Whose logins end."""

    principal: Name


_DONE = DoneRecord(done=True)


@ROUTES.get("/users", needs=_NEEDS, shows=ApiPage(AccountRecord))
def users(call: ApiCall, after: After = "", limit: Limit = 100) -> ApiReply:
    """Show the local accounts, by name."""
    found = [_account(each) for each in call.ask.access.accounts() if each.name > after][:limit]
    return call.page(found, limit, **({"after": found[-1].name} if found else {}))


@ROUTES.post("/users", needs=_NEEDS, shows=DoneRecord, status=201)
def add_user(call: ApiCall, body: NewAccount) -> ApiReply:
    """Add an account."""
    return call.act(
        lambda: call.ask.access.add_account(
            body.name, body.password, role=body.role, jobs=body.jobs or (ALL_JOBS,), reason=body.reason
        ),
        lambda _: _DONE,
        within=lambda _: _DONE,
        status=201,
    )


@ROUTES.put("/users/{name}/password", needs=_NEEDS, shows=DoneRecord)
def set_password(call: ApiCall, name: UserName, body: NewPassword) -> ApiReply:
    """Give an account another password. Its logins end."""
    return call.act(
        lambda: call.ask.access.set_password(name, body.password, reason=body.reason),
        lambda _: _DONE,
        within=lambda _: _DONE,
    )


@ROUTES.post("/users/{name}/disable", needs=_NEEDS, shows=DoneRecord)
def disable_user(call: ApiCall, name: UserName, body: Reasoned) -> ApiReply:
    """Let nobody log in to an account any more, and end its logins."""
    return call.act(
        lambda: call.ask.access.disable_account(name, reason=body.reason), lambda _: _DONE, within=lambda _: _DONE
    )


@ROUTES.post("/users/{name}/enable", needs=_NEEDS, shows=DoneRecord)
def enable_user(call: ApiCall, name: UserName, body: Reasoned) -> ApiReply:
    """Let an account that was disabled log in again."""
    return call.act(
        lambda: call.ask.access.enable_account(name, reason=body.reason), lambda _: _DONE, within=lambda _: _DONE
    )


@ROUTES.delete("/users/{name}", needs=_NEEDS, shows=DoneRecord)
def remove_user(call: ApiCall, name: UserName, reason: ReasonQuery = None) -> ApiReply:
    """Remove an account with its permissions and logins."""
    return call.act(
        lambda: call.ask.access.remove_account(name, reason=reason), lambda _: _DONE, within=lambda _: _DONE
    )


@ROUTES.get("/permissions", needs=_NEEDS, shows=ApiPage(PermissionRecord))
def permissions(call: ApiCall, principal: Annotated[str | None, Query(max_length=160)] = None) -> ApiReply:
    """Show who has which role on which job."""
    return page([_permission(each) for each in call.ask.access.permissions(principal)], None)


@ROUTES.post("/permissions", needs=_NEEDS, shows=DoneRecord)
def give(call: ApiCall, body: Give) -> ApiReply:
    """Give a role, in place of the one that the principal has there."""
    return call.act(
        lambda: call.ask.access.give(body.principal, body.role, jobs=body.jobs or (ALL_JOBS,), reason=body.reason),
        lambda _: _DONE,
        within=lambda _: _DONE,
    )


@ROUTES.post("/permissions/take", needs=_NEEDS, shows=DoneRecord)
def take(call: ApiCall, body: Take) -> ApiReply:
    """Take roles away."""
    jobs = None if body.everything else body.jobs or [ALL_JOBS]

    def said(count: int) -> DoneRecord:
        return DoneRecord(done=True, count=count)

    return call.act(lambda: call.ask.access.take(body.principal, jobs=jobs, reason=body.reason), said, within=said)


@ROUTES.get("/roles", needs=_NEEDS, shows=ApiPage(RoleRecord))
def roles(call: ApiCall) -> ApiReply:
    """Show which roles have to give a reason for every act."""
    return page([_role(each) for each in call.ask.access.role_reasons()], None)


@ROUTES.put("/roles/{role}", needs=_NEEDS, shows=DoneRecord)
def want_reasons(call: ApiCall, role: RolePath, body: WantReasons) -> ApiReply:
    """Want a reason for every act of those who act in a role, or no longer want one."""
    return call.act(
        lambda: call.ask.access.set_role_reasons(role, body.reasons, reason=body.reason),
        lambda _: _DONE,
        within=lambda _: _DONE,
    )


@ROUTES.get("/api-tokens", needs=_NEEDS, shows=ApiPage(ApiTokenRecord))
def api_tokens(call: ApiCall, ended: bool = False) -> ApiReply:
    """Show API tokens, the newest first; with `ended` also those that have ended."""
    return page([_api_token(each) for each in call.ask.access.api_tokens(ended=ended)], None)


@ROUTES.post("/api-tokens", needs=_NEEDS, shows=NewApiTokenRecord, status=201)
def add_api_token(call: ApiCall, body: NewToken) -> ApiReply:
    """Make an API token. Its secret is in this answer, and in no other one."""
    need_unit(body.expires_in, "expires_in")
    return call.act(
        lambda: call.ask.access.add_api_token(
            body.name, body.role, expires_in=body.expires_in, jobs=body.jobs or (ALL_JOBS,), reason=body.reason
        ),
        lambda made: NewApiTokenRecord(made.id, made.name, made.expires_at, None),
        status=201,
        only_now=lambda made: {"secret": made.secret},
    )


@ROUTES.delete("/api-tokens/{token_id}", needs=_NEEDS, shows=DoneRecord)
def revoke_api_token(call: ApiCall, token_id: TokenId, reason: ReasonQuery = None) -> ApiReply:
    """End an API token, and remove its permissions. `count` is 0 if it had ended before."""
    return call.act(
        lambda: call.ask.access.revoke_api_token(token_id, reason=reason),
        lambda was_alive: DoneRecord(done=True, count=int(was_alive)),
    )


@ROUTES.get("/logins", needs=_NEEDS, shows=ApiPage(LoginRecord))
def logins(call: ApiCall) -> ApiReply:
    """Show who is logged in, the newest first."""
    return page([_login(each) for each in call.ask.access.logins()], None)


@ROUTES.post("/logins/end", needs=_NEEDS, shows=DoneRecord)
def end_logins(call: ApiCall, body: EndLogins) -> ApiReply:
    """End all logins of a principal."""
    return call.act(
        lambda: call.ask.access.end_logins(body.principal, reason=body.reason),
        lambda count: DoneRecord(done=True, count=count),
    )


def _account(each: Account) -> AccountRecord:
    return AccountRecord(
        each.name,
        each.password is not None,
        instant(each.created_at),
        each.created_by,
        instant(each.changed_at),
        None if each.disabled_at is None else instant(each.disabled_at),
    )


def _permission(each: Permission) -> PermissionRecord:
    return PermissionRecord(each.principal, each.job or None, each.role, instant(each.given_at), each.given_by)


def _role(each: RoleReasons) -> RoleRecord:
    set_at = None if each.set_at is None else instant(each.set_at)
    return RoleRecord(each.role, each.reasons, set_at, each.set_by)


def _api_token(each: ApiToken) -> ApiTokenRecord:
    used, revoked = (None if at is None else instant(at) for at in (each.used_at, each.revoked_at))
    created, expires = instant(each.created_at), instant(each.expires_at)
    return ApiTokenRecord(each.id, each.name, created, each.created_by, expires, used, revoked)


def _login(each: Login) -> LoginRecord:
    times = (instant(at) for at in (each.created_at, each.seen_at, each.expires_at))
    return LoginRecord(each.principal, each.how, each.address, *times)
