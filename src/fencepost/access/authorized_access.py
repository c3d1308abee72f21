"""Accounts, permissions, API tokens and logins in the name of one caller: ``authorized.access``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fencepost.access.access import Access, NewApiToken
from fencepost.access.authority import Authority
from fencepost.core.duration import Duration
from fencepost.core.rights import ALL_JOBS, HumanAct
from fencepost.ledger.accounts import Account, Permission, RoleReasons
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.logins import ApiToken, Login

T = TypeVar("T")

HIDDEN = "(hidden)"
"""What stands in place of the hash of a password."""


class AuthorizedAccess:
    """The methods of `fencepost.access.access.Access`. All of them need the role of admin for all jobs."""

    def __init__(self, authority: Authority, ledger: Ledger) -> None:
        """Change access to `ledger` by `authority`."""
        self._authority = authority
        self._ledger = ledger

    def accounts(self) -> list[Account]:
        """Return the local accounts, by name, with `HIDDEN` in place of a hash."""
        found = self._does(lambda access: access.accounts())
        return [each._replace(password=None if each.password is None else HIDDEN) for each in found]

    def put_account(self, name: str, password: str | None, *, reason: str | None = None) -> bool:
        """Make an account, or give one another password; return whether it is new. Its logins end."""
        return self._does(lambda access: access.put_account(name, password, reason=reason), name, reason)

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
        return self._does(
            lambda access: access.add_account(name, password, role=role, jobs=jobs, reason=reason), name, reason
        )

    def set_password(self, name: str, password: str | None, *, reason: str | None = None) -> None:
        """Give an account another password, or raise `NoSuchAccount`. Its logins end."""
        return self._does(lambda access: access.set_password(name, password, reason=reason), name, reason)

    def disable_account(self, name: str, *, reason: str | None = None) -> None:
        """Let nobody log in as `name` any more, and end its logins."""
        return self._does(lambda access: access.disable_account(name, reason=reason), name, reason)

    def enable_account(self, name: str, *, reason: str | None = None) -> None:
        """Let `name` log in again."""
        return self._does(lambda access: access.enable_account(name, reason=reason), name, reason)

    def remove_account(self, name: str, *, reason: str | None = None) -> None:
        """Remove an account with its permissions and logins."""
        return self._does(lambda access: access.remove_account(name, reason=reason), name, reason)

    def permissions(self, principal: str | None = None) -> list[Permission]:
        """Return who has which role on which job."""
        return self._does(lambda access: access.permissions(principal), principal)

    def give(self, principal: str, role: str, *, jobs: Sequence[str] = (ALL_JOBS,), reason: str | None = None) -> None:
        """Give a principal a role on these jobs; by default on all of them."""
        return self._does(lambda access: access.give(principal, role, jobs=jobs, reason=reason), principal, reason)

    def take(self, principal: str, *, jobs: Sequence[str] | None = None, reason: str | None = None) -> int:
        """Take away a principal's roles on these jobs, or with None all of them; return how many there were."""
        return self._does(lambda access: access.take(principal, jobs=jobs, reason=reason), principal, reason)

    def role_reasons(self) -> list[RoleReasons]:
        """Return of which roles a reason is wanted for every act."""
        return self._does(lambda access: access.role_reasons())

    def set_role_reasons(self, role: str, reasons: str, *, reason: str | None = None) -> None:
        """Want a reason for every act of those who act in a role, or no longer want one."""
        return self._does(lambda access: access.set_role_reasons(role, reasons, reason=reason), role, reason)

    def api_tokens(self, *, ended: bool = False) -> list[ApiToken]:
        """Return API tokens, the newest first; with `ended` also those that expired or were revoked."""
        return self._does(lambda access: access.api_tokens(ended=ended))

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
        return self._does(
            lambda access: access.add_api_token(name, role, expires_in=expires_in, jobs=jobs, reason=reason),
            name,
            reason,
        )

    def revoke_api_token(self, token_id: str, *, reason: str | None = None) -> bool:
        """End an API token and remove its permissions; return whether it was alive."""
        return self._does(lambda access: access.revoke_api_token(token_id, reason=reason), token_id, reason)

    def logins(self) -> list[Login]:
        """Return who is logged in, the newest first."""
        return self._does(lambda access: access.logins())

    def end_logins(self, principal: str, *, reason: str | None = None) -> int:
        """End all logins of a principal; return how many there were."""
        return self._does(lambda access: access.end_logins(principal, reason=reason), principal, reason)

    def _does(self, call: Callable[[Access], T], of: str | None = None, reason: str | None = None) -> T:
        return self._authority.does(
            HumanAct.CHANGE_ACCESS, reason, lambda scope: call(Access(self._ledger, scope)), of=of
        )
