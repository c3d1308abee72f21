"""Finding out who asks: logging in and out, and `Authorized` operations for each kind of identification.

``Authentication(app.operations)`` is made once for a server. Each request then asks it for `Authorized` operations: by
the secret of its login, by its API token, by the name that a proxy or the host application vouches for.

**Promises.** All reasons for which a login or API token does not work raise one `NotAuthenticated`, with one message.
Logging in takes as long for an account that does not exist. At most two passwords are hashed at once. Logins and
log-outs are in the audit, in the same transaction; refused ones as `fencepost.access.refusals` says, and how many wrong
passwords are taken is said in `fencepost.access.tries`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fencepost.access import passwords
from fencepost.access.access import LOGIN_IDLE_S, LOGIN_LASTS_S, TOKEN_MARK, account_name, role_named
from fencepost.access.authorized import Authorized
from fencepost.access.identity import API_TOKEN, HOST, LINK, LOGIN, PROXY, Identity, Known, Recent
from fencepost.access.refusals import Refusals, Unknown
from fencepost.access.tries import Tries
from fencepost.app.operations import Operations
from fencepost.core.audit_words import LOG_IN, LOG_OUT
from fencepost.core.rights import ALL_JOBS, Caller, Role, Scope
from fencepost.core.tick import instant
from fencepost.errors import InvalidName, NotAuthenticated, TooManyTries
from fencepost.ledger import accounts, auditing, logins
from fencepost.ledger.accounts import TOKEN, USER, Account
from fencepost.ledger.auditing import AuditAct
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.hints import changes
from fencepost.ledger.logins import secret_hash
from fencepost.sql.turns import Turns

_HASHES_AT_ONCE = 2  # each takes 64 MB and a processor
_HASH_WAIT_S = 5.0  # two hashes take a quarter of a second; who waits longer meets a flood of logins
_UNUSED = "login, asked for by an open page"  # kept apart: a click after it still counts as use
_UNUSED_LASTS_S = 600.0  # how late open pages see a change by hand in the tables; others are seen in two seconds
_WRONG = "the name or the password is wrong"


@dataclass(frozen=True, slots=True)
class NewLogin:
    """A login. `secret` goes into the cookie, and cannot be had again."""

    principal: str
    expires_at: datetime
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HostPrincipal:
    """Whom the host application vouches for, with roles by job: ``{"settle": "operator"}``; `ALL_JOBS` for all.

    With None, those of the permissions on record for ``host:NAME``.
    """

    name: str
    roles: Mapping[str, str] | None = None


class Authentication:
    """Who may use the operations of one ledger. Safe for several threads."""

    def __init__(self, operations: Operations) -> None:
        """Let people operate what `operations`, which has the direct scope, can reach."""
        self._operations = operations
        self._ledger = operations.ledger
        self.refusals = Refusals(self._ledger)
        self._recent = Recent(self._ledger)
        self._tries = Tries(self._ledger.runtime)
        self._hashing = Turns(self._ledger.runtime, limit=_HASHES_AT_ONCE, busy=TooManyTries)

    # -- logging in and out ------------------------------------------------------------------------------------------

    def log_in(
        self,
        name: str,
        password: str,
        *,
        address: str | None = None,
        request_id: str | None = None,
        is_shared: bool = False,
    ) -> NewLogin:
        """Log in with the password of a local account, or raise `NotAuthenticated`; `TooManyTries` for a while.

        `is_shared`: the address is that of a proxy, which all come from. It is put on record, and locks nobody out.
        """
        found = self._account(name)
        who = Unknown(LOGIN, None if found is None else found.name, address)
        place = None if is_shared else address
        self._refuse_too_many(name, place, who)
        with self._hashing.turn(_HASH_WAIT_S):
            self._refuse_too_many(name, place, who)  # again: of many at once, all have waited here for the first ones
            is_right = passwords.is_right(password, None if found is None else found.password)
        made = self._logged_in(found, password, address, request_id) if found is not None and is_right else None
        if made is None:
            self._tries.failed(name, place)
            self.refusals.count(who)
            raise NotAuthenticated(_WRONG)
        self._tries.succeeded(name, place)
        return made

    def log_in_by_link(self, name: str, *, address: str | None = None, request_id: str | None = None) -> NewLogin:
        """Log in one who has the database's password, and followed a link that only that person has seen: as admin.

        The caller has made the link, and has checked that it is used for the first time.
        """
        known = Known(f"local:{account_name(name)}", LINK)
        return self._ledger.write(lambda cursor: self._add_login(cursor, known, address, request_id))

    def log_out(self, secret: str, *, address: str | None = None, request_id: str | None = None) -> bool:
        """End a login; return whether it was alive."""
        found = logins.live_login(self._ledger, secret, idle_s=LOGIN_IDLE_S)
        if found is None:
            return False

        def work(cursor: Cursor) -> bool:
            if not logins.revoke_login(self._ledger, cursor, found.secret_hash):
                return False
            caller = Caller(found.principal, found.how, address, request_id)
            auditing.record(self._ledger, cursor, AuditAct(caller, LOG_OUT))
            return True

        ended = self._ledger.write(work)
        for how in (LOGIN, _UNUSED):
            self._recent.forget(f"{how} {found.secret_hash}")
        return ended

    # -- who asks ----------------------------------------------------------------------------------------------------

    def by_login(
        self, secret: str, *, address: str | None = None, request_id: str | None = None, is_use: bool = True
    ) -> Authorized:
        """Return the operations of one who is logged in, by the secret of the cookie.

        Without `is_use`, the login stays as idle as it is: for what an open page asks by itself.
        """

        def find() -> Known:
            found = logins.live_login(self._ledger, secret, idle_s=LOGIN_IDLE_S, is_use=is_use)
            if found is None:
                raise NotAuthenticated
            roles = {ALL_JOBS: Role.ADMIN} if found.how == LINK else None
            ends_us = min(found.expires_at, found.seen_at + round(LOGIN_IDLE_S * 1_000_000))
            return Known(found.principal, found.how, roles, ends_us, *(() if is_use else (_UNUSED_LASTS_S,)))

        return self._by_secret(LOGIN if is_use else _UNUSED, secret, find, address, request_id)

    def by_api_token(self, secret: str, *, address: str | None = None, request_id: str | None = None) -> Authorized:
        """Return the operations of an API token: what follows ``Bearer`` in the header ``Authorization``."""

        def find() -> Known:
            found = logins.live_api_token(self._ledger, secret) if secret.startswith(TOKEN_MARK) else None
            if found is None:
                raise NotAuthenticated
            return Known(f"{TOKEN}{found.id}", API_TOKEN, ends_at_us=found.expires_at)

        return self._by_secret(API_TOKEN, secret, find, address, request_id)

    def by_proxy(self, name: str, *, address: str | None = None, request_id: str | None = None) -> Authorized:
        """Return the operations of a user that a trusted proxy names. The caller has checked that it is that proxy."""
        known = Known(f"proxy:{_vouched(name)}", PROXY)
        return self._authorized(f"proxy {name}", lambda: known, address, request_id)

    def by_host(
        self, who: HostPrincipal | str, *, address: str | None = None, request_id: str | None = None
    ) -> Authorized:
        """Return the operations of a principal that the host application vouches for."""
        given = HostPrincipal(who) if isinstance(who, str) else who
        roles = None if given.roles is None else {job: role_named(role) for job, role in given.roles.items()}
        known = Known(f"host:{_vouched(given.name)}", HOST, roles)
        key = f"host {given.name} {sorted((roles or {}).items()) if roles is not None else None}"
        return self._authorized(key, lambda: known, address, request_id)

    def changes(self) -> str:
        """Return a text that is another one as soon as something has changed: for hints to open pages."""
        sent_at = self._ledger.runtime.monotonic()
        found = changes(self._ledger)
        self._recent.confirm(found.rights, found.now_us, sent_at=sent_at)
        return found.mark

    def close(self) -> None:
        """Write the refusals that were counted."""
        self.refusals.close()

    # -- small things ------------------------------------------------------------------------------------------------

    def _by_secret(
        self, how: str, secret: str, find: Callable[[], Known], address: str | None, request_id: str | None
    ) -> Authorized:
        try:
            return self._authorized(f"{how} {secret_hash(secret)}", find, address, request_id)
        except NotAuthenticated:
            self.refusals.count(Unknown(LOGIN if how == _UNUSED else how, None, address))
            raise

    def _authorized(
        self, key: str, find: Callable[[], Known], address: str | None, request_id: str | None
    ) -> Authorized:
        identity = Identity(self._recent, key, find, address=address, request_id=request_id)
        return Authorized(self._operations, identity, self.refusals)

    def _refuse_too_many(self, name: str, place: str | None, who: Unknown) -> None:
        waits_s = self._tries.wait_s(name, place)
        if waits_s > 0:
            self.refusals.count(who)
            raise TooManyTries(waits_s)

    def _account(self, name: str) -> Account | None:
        """Return the account that a person can log in to; None if there is none of that name, or it is disabled."""
        try:
            found = accounts.account(self._ledger, account_name(name))
        except InvalidName:
            return None
        return found if found is not None and found.name == name and found.disabled_at is None else None

    def _logged_in(
        self, account: Account, password: str, address: str | None, request_id: str | None
    ) -> NewLogin | None:
        """Add a login, unless the account was disabled, removed or given another password meanwhile."""
        known = Known(f"{USER}{account.name}", LOGIN)

        def work(cursor: Cursor) -> NewLogin | None:
            now = accounts.locked_account(self._ledger, cursor, account.name)
            if now is None or now.disabled_at is not None or now.password != account.password:
                return None
            return self._add_login(cursor, known, address, request_id)

        made = self._ledger.write(work)
        if made is not None and passwords.is_outdated(str(account.password)):
            new = passwords.hash_password(password)
            accounts.rehash(self._ledger, account.name, old=str(account.password), new=new)
        return made

    def _add_login(self, cursor: Cursor, known: Known, address: str | None, request_id: str | None) -> NewLogin:
        runtime = self._ledger.runtime
        secret = f"{runtime.new_id()}{runtime.new_id()}"
        logins.add_login(
            self._ledger, cursor, secret, known.principal, how=known.how, address=address, lasts_s=LOGIN_LASTS_S
        )
        caller = Caller(known.principal, known.how, address, request_id)
        auditing.record(self._ledger, cursor, AuditAct(caller, LOG_IN))
        expires_at = instant(self._ledger.dialect.now_us(cursor) + round(LOGIN_LASTS_S * 1_000_000))
        return NewLogin(known.principal, expires_at, secret)


def authorize(operations: Operations, scope: Scope) -> Authorized:
    """Return operations under a fixed scope, such as that of the command line. It does not end."""
    known = Known(scope.caller.name, scope.caller.how, scope.roles)
    recent = Recent(operations.ledger)
    identity = Identity(recent, "", lambda: known, address=scope.caller.address, request_id=scope.caller.request_id)
    return Authorized(operations, identity, Refusals(operations.ledger))


def _vouched(name: str) -> str:
    """Return a name that a proxy or the host application gives, or refuse one that nobody can have been given."""
    try:
        return account_name(name)
    except InvalidName:
        raise NotAuthenticated from None
