"""Who asks, and what that principal may do now. The one place that says how each kind of identification is read.

=================  ======================  =================  =====================================================
identified by      principal               `Caller.how`       roles
=================  ======================  =================  =====================================================
login, password    ``user:NAME``           ``login``          the permissions on record
one-time link      ``local:NAME``          ``link``           admin: it is made by one who reaches the database
API token          ``token:ID``            ``api token``      the permissions on record
proxy header       ``proxy:NAME``          ``proxy header``   the permissions on record
host application   ``host:NAME``           ``host``           those that it returns, or the permissions on record
=================  ======================  =================  =====================================================

**Promises.** What was read from the ledger is used for at most a second, or two while pages are open: then a login or
API token that was revoked or has expired, and permissions that were taken away, no longer work. Acts always read it
anew. Ends are compared with the ledger's clock.

While pages are open, one statement a second asks whether anything has changed (`fencepost.ledger.hints`). If nothing
has that concerns rights, what was read is as good as read again at that moment, for some minutes: so that a hundred
open pages do not read a hundred logins each second. What somebody changes in the tables by hand is not in the audit,
and is seen when these minutes are over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from fencepost.core.rights import Caller, Role, Scope, permissions_of
from fencepost.ledger import accounts, jobs
from fencepost.ledger.ledger import Ledger

TRUSTED_S = 1.0  # how late a revocation may take effect; spares the ledger a question per request
_MOST_KEPT = 1000  # bounds memory; a team has tens of callers
_SECOND_US = 1_000_000
LOGIN, LINK, API_TOKEN, PROXY, HOST = "login", "link", "api token", "proxy header", "host"


class Known(NamedTuple):
    """A principal, and its roles by job if it brings them along; None: those on record."""

    principal: str
    how: str
    roles: Mapping[str, Role] | None = None
    ends_at_us: int | None = None  # by itself: the end of a login or API token
    lasts_s: float = 60.0  # how long it may be used at most, if nothing changes: then it counts as used again


class Recent:
    """What principals may do, as it was read within the last second. Shared by all requests of a process."""

    def __init__(self, ledger: Ledger) -> None:
        """Read `ledger`."""
        self.ledger = ledger
        self._lock = ledger.runtime.lock()
        self._kept: dict[str, tuple[float, Known, Scope]] = {}
        self._rights = ""
        self._same_since = inf  # what was read from then on has seen the last change of rights
        self._confirmed_at, self._confirmed_us = -inf, 0

    def scope(
        self, key: str, find: Callable[[], Known], caller: Callable[[Known], Caller], *, is_fresh: bool = False
    ) -> tuple[Known, Scope]:
        """Return who is meant by `key` and what that one may do; `find` raises `NotAuthenticated` if nobody is."""
        now = self.ledger.runtime.monotonic()
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and not is_fresh and self._is_trusted(kept[0], kept[1], now):
            _, known, scope = kept
        else:
            try:
                known = find()
            except BaseException:
                with self._lock:
                    self._kept.pop(key, None)
                raise
            scope = scope_of(self.ledger, known, Caller(known.principal, known.how))
            self._keep(key, (now, known, scope))
        return known, replace(scope, caller=caller(known))

    def confirm(self, rights: str, now_us: int, *, sent_at: float) -> None:
        """Note that the rights had this mark at some time since `sent_at`, when the ledger's time was `now_us`."""
        with self._lock:
            if rights != self._rights:
                self._rights, self._same_since = rights, self.ledger.runtime.monotonic()
            self._confirmed_at, self._confirmed_us = sent_at, now_us

    def _is_trusted(self, read_at: float, known: Known, now: float) -> bool:
        """Whether what was read then was true within the last second, or two: so often it is asked for changes."""
        if now - read_at < TRUSTED_S:
            return True
        with self._lock:
            is_same = read_at >= self._same_since and now - self._confirmed_at < 2 * TRUSTED_S
            ends_later = known.ends_at_us is None or known.ends_at_us > self._confirmed_us + _SECOND_US
        return is_same and ends_later and now - read_at < known.lasts_s

    def forget(self, key: str) -> None:
        """Read anew what is asked for next."""
        with self._lock:
            self._kept.pop(key, None)

    def _keep(self, key: str, value: tuple[float, Known, Scope]) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = value
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]


class Identity:
    """One who asks, for the length of a request or a stream."""

    def __init__(
        self,
        recent: Recent,
        key: str,
        find: Callable[[], Known],
        *,
        address: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Find out who asks; raises `NotAuthenticated` if nobody is known by this."""
        self._recent = recent
        self._key = key
        self._find = find
        self._address = address
        self._request_id = request_id
        self._known, first = self._read(is_fresh=False)
        self.caller = first.caller

    @property
    def principal(self) -> str:
        """Whom permissions are given to."""
        return self._known.principal

    def scope(self, *, is_fresh: bool = False) -> Scope:
        """Return what the caller may do now. Raises `NotAuthenticated` once the login or API token has ended."""
        self._known, scope = self._read(is_fresh=is_fresh)
        return scope

    def _read(self, *, is_fresh: bool) -> tuple[Known, Scope]:
        return self._recent.scope(self._key, self._find, self._caller, is_fresh=is_fresh)

    def _caller(self, known: Known) -> Caller:
        return Caller(known.principal, known.how, self._address, self._request_id)


def scope_of(ledger: Ledger, known: Known, caller: Caller) -> Scope:
    """Return what a principal may do now, parts of bulk jobs included."""
    if known.roles is not None:
        scope = Scope(caller, dict(known.roles))
    else:
        found = accounts.permissions(ledger, principal=known.principal)
        # Compared again: some databases take a text with spaces behind it for the same.
        given = [(each.job, each.role) for each in found if each.principal == known.principal]
        scope = permissions_of(caller, given)
    if not scope.roles:
        return scope
    return replace(scope.with_parts(jobs.parents(ledger)), reasons_of=accounts.roles_that_say_why(ledger))
