"""Accounts, permissions and API tokens, asked of a server: the methods of `fencepost.access.Access` for commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.access.access import NewApiToken
from fencepost.access.authorized_access import HIDDEN
from fencepost.app.records import JobRecord
from fencepost.app.records.results import AccountRecord, ApiTokenRecord, NewApiTokenRecord, PermissionRecord, RoleRecord
from fencepost.app.records.shapes import read_record
from fencepost.cli.remote.connection import ServerConnection, part
from fencepost.cli.remote.subjects import pages, records
from fencepost.core.rights import ALL_JOBS
from fencepost.core.tick import microseconds
from fencepost.errors import ConfigurationError
from fencepost.ledger.accounts import Account, Permission, RoleReasons
from fencepost.ledger.logins import ApiToken

if TYPE_CHECKING:
    from fencepost.core.duration import Duration


class RemoteAccess:
    """Changes to who may do what, on the ledger of a server."""

    def __init__(self, server: ServerConnection, jobs: Callable[[], list[JobRecord]]) -> None:
        """Ask `server`; `jobs` returns those on record."""
        self._server = server
        self._jobs = jobs

    def accounts(self) -> list[Account]:
        """Return the local accounts, by name."""
        found = pages(self._server, AccountRecord, "/users", {}, edge="after", start="", limit=None)
        return [
            Account(
                each.name,
                HIDDEN if each.has_password else None,
                microseconds(each.created_at),
                each.created_by,
                microseconds(each.changed_at),
                _us(each.disabled_at),
            )
            for each in found
        ]

    def add_account(
        self,
        name: str,
        password: str | None,
        *,
        role: str | None = None,
        jobs: Sequence[str] = (ALL_JOBS,),
        reason: str | None = None,
    ) -> None:
        """Make an account."""
        body = {"name": name, "password": password, "role": role, "jobs": _named(jobs), "reason": reason}
        self._server.act("/users", body)

    def set_password(self, name: str, password: str | None, *, reason: str | None = None) -> None:
        """Give an account another password."""
        body = {"password": password, "reason": reason}
        self._server.act(f"/users/{part(name)}/password", body, method="PUT")

    def disable_account(self, name: str, *, reason: str | None = None) -> None:
        """Let nobody log in as `name` any more."""
        self._server.act(f"/users/{part(name)}/disable", {"reason": reason})

    def enable_account(self, name: str, *, reason: str | None = None) -> None:
        """Let `name` log in again."""
        self._server.act(f"/users/{part(name)}/enable", {"reason": reason})

    def remove_account(self, name: str, *, reason: str | None = None) -> None:
        """Remove an account."""
        self._server.act(f"/users/{part(name)}", None, method="DELETE", query={"reason": reason})

    def permissions(self, principal: str | None = None) -> list[Permission]:
        """Return who has which role on which job."""
        found = records(PermissionRecord, self._server.get("/permissions", {"principal": principal}))
        return [
            Permission(each.principal, each.job or ALL_JOBS, each.role, microseconds(each.given_at), each.given_by)
            for each in found
        ]

    def give(self, principal: str, role: str, *, jobs: Sequence[str] = (ALL_JOBS,), reason: str | None = None) -> None:
        """Give a principal a role."""
        body = {"principal": principal, "role": role, "jobs": _named(jobs), "reason": reason}
        self._server.act("/permissions", body)

    def take(self, principal: str, *, jobs: Sequence[str] | None = None, reason: str | None = None) -> int:
        """Take roles away; return how many there were."""
        body = {"principal": principal, "reason": reason, "everything": jobs is None, "jobs": _named(jobs or ())}
        return int(self._server.act("/permissions/take", body)["count"])

    def role_reasons(self) -> list[RoleReasons]:
        """Return of which roles a reason is wanted for every act."""
        found = records(RoleRecord, self._server.get("/roles", {}))
        return [RoleReasons(each.role, each.reasons, _us(each.set_at), each.set_by) for each in found]

    def set_role_reasons(self, role: str, reasons: str, *, reason: str | None = None) -> None:
        """Want a reason for every act of those who act in a role, or no longer want one."""
        self._server.act(f"/roles/{part(role)}", {"reasons": reasons, "reason": reason}, method="PUT")

    def jobs_not_on_record(self, names: Sequence[str]) -> list[str]:
        """Return which of these jobs no node has registered."""
        known = {each.name for each in self._jobs()} if any(names) else set()
        return [name for name in names if name != ALL_JOBS and name not in known]

    def api_tokens(self, *, ended: bool = False) -> list[ApiToken]:
        """Return API tokens, the newest first."""
        found = records(ApiTokenRecord, self._server.get("/api-tokens", {"ended": str(ended).lower()}))
        return [
            ApiToken(
                each.id,
                each.name,
                microseconds(each.created_at),
                each.created_by,
                microseconds(each.expires_at),
                _us(each.used_at),
                _us(each.revoked_at),
            )
            for each in found
        ]

    def add_api_token(
        self,
        name: str,
        role: str,
        *,
        expires_in: Duration,
        jobs: Sequence[str] = (ALL_JOBS,),
        reason: str | None = None,
    ) -> NewApiToken:
        """Make an API token."""
        body = {"name": name, "role": role, "expires_in": str(expires_in), "jobs": _named(jobs), "reason": reason}
        made = read_record(NewApiTokenRecord, self._server.act("/api-tokens", body))
        if made.secret is None:  # the answer was lost on its way, and is not shown twice
            raise ConfigurationError(f"API token {made.id} was made, and its secret was lost: revoke it, make another")
        return NewApiToken(made.id, made.name, made.secret, made.expires_at)

    def revoke_api_token(self, token_id: str, *, reason: str | None = None) -> bool:
        """End an API token; return whether it was alive."""
        done = self._server.act(f"/api-tokens/{part(token_id)}", None, method="DELETE", query={"reason": reason})
        return bool(done["count"])


def _named(jobs: Sequence[str]) -> list[str] | None:
    return None if ALL_JOBS in jobs or not jobs else list(jobs)


def _us(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)
