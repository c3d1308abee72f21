"""The checks at the start of the store: permissions, features of the server, and whether locks are safe there."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping

from redis.exceptions import AuthenticationError, NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from fencepost.errors import StoreRefused, StoreUnavailable, UnsafeStore
from fencepost.leases.stores.redis.route import UnknownPrimary
from fencepost.leases.stores.redis.scripts import PROBE
from fencepost.leases.stores.redis.wires import Wires

OLDEST_VERSION = 5  # the first version whose scripts may write after they have read the clock

BEST_EFFORT = "on Redis and Valkey the de-duplication of ticks is best effort: a server that loses data loses them too"


def examine(
    *, calls: Wires, listeners: Wires, key: str, timeout_s: float, accepted_risks: Collection[str]
) -> tuple[str, ...]:
    """Return warnings for the operator, or raise if the store must not be used. `key` must not belong to a lock."""
    try:
        facts = _facts(calls, timeout_s)
        _refuse_unfit(facts)
        calls.ask(PROBE.call(key), timeout_s)
        listeners.talk(lambda wire: wire.subscribe(f"{key}:changed"), timeout_s)
        listeners.drop_idle()
    except StoreUnavailable as error:
        if (reason := _refusal(error.__cause__)) is not None:
            raise StoreRefused(f"{str(error).rstrip('.')}; {reason}") from error
        raise
    risks = tuple(_unless_accepted(risk, why, accepted_risks) for risk, why in _risks(facts))
    return (*risks, *_reservations(facts))


def _facts(calls: Wires, timeout_s: float) -> dict[str, str]:
    """Return the fields of INFO; empty if the user may not run it."""
    try:
        answer = calls.ask(("INFO",), timeout_s)
    except StoreUnavailable as error:
        if isinstance(error.__cause__, NoPermissionError):
            return {}
        raise
    lines = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
    return {name: value for name, _, value in lines}


def _refuse_unfit(facts: Mapping[str, str]) -> None:
    version = facts.get("redis_version", str(OLDEST_VERSION))
    if int(version.partition(".")[0]) < OLDEST_VERSION:
        raise StoreRefused(f"the server is version {version}; scripts that read its clock need 5.0 or newer")
    if facts.get("cluster_enabled") == "1":
        raise StoreRefused(
            "the server is part of a Redis Cluster: there one pipeline cannot renew all leases, and a replica that is "
            "promoted may not know the last grants; use a single server, a Sentinel set-up or another store"
        )
    if facts.get("role") == "slave":
        primary = f"{facts.get('master_host')}:{facts.get('master_port')}"
        raise StoreRefused(f"the server is a read-only replica; connect to its primary, {primary}")


def _refusal(cause: BaseException | None) -> str | None:
    """Return what to correct, if a retry cannot resolve the server's error."""
    if isinstance(cause, AuthenticationError):
        return "wrong user or password in the URL, or none where the server wants one"
    # Inside a script the server reports this error in another way.
    if isinstance(cause, NoPermissionError) or "ACL failure in script" in str(cause):
        return "give the user the rights listed in the documentation of this store"
    if isinstance(cause, UnknownPrimary):
        return "the URL's path begins with the name that 'sentinel monitor' gives to the primary"
    if isinstance(cause, ResponseError) and not isinstance(cause, OutOfMemoryError | ReadOnlyError):
        return "see its configuration"
    if cause is not None and isinstance(cause.__context__, ssl.SSLCertVerificationError):
        return "its certificate is not trusted; name the authority's with ca=/path/to/ca.crt"
    return None


def _risks(facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not facts:
        yield "unchecked", "the user may not run INFO, so eviction, replication and Cluster mode cannot be looked at"
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield "eviction", f"maxmemory-policy is {policy}: when memory is short the server deletes locks that are held"


def _unless_accepted(risk: str, why: str, accepted_risks: Collection[str]) -> str:
    if risk not in accepted_risks:
        raise UnsafeStore(risk, why)
    return f"accepted risk: {why}"


def _reservations(facts: Mapping[str, str]) -> Iterator[str]:
    yield BEST_EFFORT
    if facts.get("aof_enabled") == "0":
        yield "without an append-only file a restart of the server forgets who holds what (set appendonly yes)"
    if facts.get("connected_slaves", "0") != "0":
        yield "replication is asynchronous: a replica that is promoted may not know the last grants"
