"""The operations of etcd transactions, and how their replies are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.leases.stores.etcd.client import EtcdAnswer
from fencepost.leases.stores.etcd.values import EtcdNameState, EtcdRecord, encoded, to_hold, to_record

Part = dict[str, Any]


def is_absent(key: str) -> Part:
    """Compare: the key does not exist."""
    return {"target": "CREATE", "key": key, "create_revision": 0}


def is_unchanged(key: str, revision: int) -> Part:
    """Compare: the key was last written at `revision`; 0 means that it does not exist."""
    return {"target": "MOD", "key": key, "mod_revision": revision}


def is_held_by(key: str, grant_id: str) -> list[Part]:
    """Compare: the holder key's value begins with this grant id and the space after it."""
    return [
        {"target": "VALUE", "result": "GREATER", "key": key, "value": encoded(f"{grant_id} ")},
        {"target": "VALUE", "result": "LESS", "key": key, "value": encoded(f"{grant_id}!")},
    ]


def never(key: str) -> Part:
    """Compare: never true, so that etcd checks the permissions and writes nothing."""
    return {"target": "VERSION", "key": key, "version": -1}


def put(key: str, value: str, lease_id: str = "0") -> Part:
    """Write a key, attached to an etcd lease if one is given."""
    return {"request_put": {"key": key, "value": value, "lease": lease_id}}


def delete(key: str) -> Part:
    """Delete a key."""
    return {"request_delete_range": {"key": key}}


def get(key: str, end: str = "", limit: int = 0) -> Part:
    """Read a key, or all from `key` to before `end`."""
    return {"request_range": {"key": key, "range_end": end, "limit": limit}}


def found(answer: EtcdAnswer, index: int) -> list[dict[str, Any]]:
    """Return the keys that the `index`-th operation of the transaction, a `get`, has found."""
    kvs: list[dict[str, Any]] = answer.body["responses"][index]["response_range"].get("kvs", [])
    return kvs


def seen(answer: EtcdAnswer) -> EtcdNameState:
    """Read the reply to ``[get(holder), get(record)]``."""
    holders, records = found(answer, 0), found(answer, 1)
    known = to_known(records[0]) if records else EtcdRecord(0, answer.time_us, None)
    if not holders:
        return EtcdNameState(None, "0", 0, known)
    return EtcdNameState(to_hold(holders[0]), holders[0].get("lease", "0"), int(holders[0]["mod_revision"]), known)


def to_known(kv: Mapping[str, Any]) -> EtcdRecord:
    """Read a record with the revision of its key."""
    record = to_record(kv)
    return EtcdRecord(int(kv["mod_revision"]), record.token, record)
