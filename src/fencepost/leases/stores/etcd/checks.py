"""The checks at the start of the store: version, permissions, and what limits the store's promises."""

from __future__ import annotations

from fencepost.errors import StoreRefused, StoreUnavailable
from fencepost.leases.stores.etcd import transactions
from fencepost.leases.stores.etcd.client import Client, EtcdRefused, TlsTrouble
from fencepost.leases.stores.etcd.connection import BROKE
from fencepost.leases.stores.etcd.values import EtcdKeys, encoded
from fencepost.leases.urls import StoreUrl

_OLDEST = (3, 4, 0)  # the first version whose JSON gateway is at /v3
_INCONSISTENT_SINCE, _INCONSISTENT_UNTIL = (3, 5, 0), (3, 5, 2)  # etcd issue 13766: versions that are warned of
_NOT_ENABLED = "authentication is not enabled"


def examine(client: Client, keys: EtcdKeys, url: StoreUrl, deadline: float) -> tuple[str, ...]:
    """Return the warnings; raise `StoreRefused` or `StoreUnavailable`."""
    try:
        version = _version(client, deadline)
        warnings = [*_log_in(client, url, deadline), *_doubts_about(version)]
        _try_rights(client, keys, deadline)
        return (*warnings, *_doubts_about_size(client, deadline))
    except TlsTrouble as error:
        raise StoreRefused(f"{error}; check the options ca, cert and key, and etcds:// against etcd://") from error
    except EtcdRefused as error:
        raise StoreRefused(f"etcd at {client.calls.addresses} refused: {error}; {_advice(url)}") from error


def _version(client: Client, deadline: float) -> tuple[int, ...]:
    try:
        text = client.version(deadline)
    except StoreUnavailable as error:
        if not str(error).endswith(BROKE):
            raise
        raise StoreUnavailable(f"{error}; if it wants TLS, the URL begins with etcds://") from error
    version = tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())
    if not version:
        raise StoreRefused(
            f"the server at {client.calls.addresses} is not an etcd, or wants TLS (then the URL begins with etcds://)"
        )
    if version < _OLDEST:
        raise StoreRefused(f"etcd {text} is too old: Fencepost needs 3.4 or newer")
    return version


def _log_in(client: Client, url: StoreUrl, deadline: float) -> list[str]:
    if url.user is None:
        return []
    try:
        client.log_in(deadline)
    except EtcdRefused as error:
        if not str(error).endswith(_NOT_ENABLED):
            raise
        return ["etcd does not check users: its authentication is off, so anyone who can connect can take locks"]
    return []


def _try_rights(client: Client, keys: EtcdKeys, deadline: float) -> None:
    """Check read and write access to both kinds of keys, with a transaction that writes nothing."""
    record, holder = keys.record("rights"), keys.holder("rights")
    body = {
        "compare": [transactions.never(record), transactions.never(holder)],
        "success": [transactions.put(record, encoded("")), transactions.put(holder, encoded(""))],
        "failure": [transactions.get(record), transactions.get(holder)],
    }
    if not client.call("kv/txn", body, deadline).time_us >= 1_000_000:
        raise StoreRefused("etcd's replies have no Date header, which tokens need; a proxy in between may remove it")


def _doubts_about(version: tuple[int, ...]) -> list[str]:
    if not _INCONSISTENT_SINCE <= version <= _INCONSISTENT_UNTIL:
        return []
    text = ".".join(map(str, version))
    return [f"etcd {text} can have inconsistent data after a crash (etcd issue 13766): upgrade to 3.5.3 or newer"]


def _doubts_about_size(client: Client, deadline: float) -> list[str]:
    try:
        members = client.call("cluster/member/list", {}, deadline).body.get("members", [])
    except (EtcdRefused, StoreUnavailable):
        return []  # the user may not be allowed to ask, and nothing depends on it
    if sum(not member.get("isLearner") for member in members) != 1:
        return []
    return ["etcd has a single member: locks are lost with its disk, and unavailable while it is down"]


def _advice(url: StoreUrl) -> str:
    if url.user is None:
        return "if it asks for a user, write it into the URL: etcd://user:password@host"
    return f"check the password of user {url.user!r} and its rights to read and write the prefix"
