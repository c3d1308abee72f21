"""Reads names for operators: records with their holders, and the remaining time of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fencepost.core.grants import LeaseRecord
from fencepost.leases.stores.etcd.client import EtcdAnswer
from fencepost.leases.stores.etcd.transactions import found, get, seen, to_known
from fencepost.leases.stores.etcd.values import EtcdKeys, EtcdNameState, EtcdRecord, after, decoded, encoded, to_hold

_PAGE_LENGTH = 500  # names per request: a reply stays far below etcd's limit on its size

Ask = Callable[[str, dict[str, Any], float], EtcdAnswer]


class EtcdInspection:
    """Read-only requests. `ask` calls a method of etcd, with a deadline."""

    def __init__(self, ask: Ask, keys: EtcdKeys) -> None:
        self._ask = ask
        self._keys = keys

    def read(self, name: str, deadline: float) -> LeaseRecord | None:
        """Return the record of `name`."""
        gets = [get(self._keys.holder(name)), get(self._keys.record(name))]
        now = seen(self._ask("kv/txn", {"success": gets}, deadline))
        if now.hold is None and now.known.record is None:
            return None
        return _record(name, now, self.left_s(now.lease_id, deadline) if now.hold else None)

    def records(self, new_deadline: Callable[[], float]) -> Iterator[LeaseRecord]:
        """Yield the records of all names, in order, page by page. Pages are read at different times."""
        start: str | None = ""
        while start is not None:
            names, start = self._page(start, new_deadline())
            left_s: dict[str, float | None] = {}
            for name, now in sorted(names.items()):
                if now.hold is not None and now.lease_id not in left_s:
                    left_s[now.lease_id] = self.left_s(now.lease_id, new_deadline())
                yield _record(name, now, left_s.get(now.lease_id))

    def left_s(self, lease_id: str, deadline: float) -> float | None:
        """Return in how many seconds the etcd lease ends without a renewal. etcd rounds down, so this rounds up."""
        left_s = int(self._ask("lease/timetolive", {"ID": lease_id}, deadline).body.get("TTL", 0))
        return left_s + 1.0 if left_s >= 0 else None

    def _page(self, start: str, deadline: float) -> tuple[dict[str, EtcdNameState], str | None]:
        """Return the names from `start` on, also those that have only a holder, and where the next page starts."""
        records = self._range(self._keys.records, start, None, deadline, limit=_PAGE_LENGTH)
        is_last = len(records) < _PAGE_LENGTH
        end = None if is_last else max(records) + "\0"
        holders = self._range(self._keys.holders, start, end, deadline)
        no_record = EtcdRecord(0, 0, None)
        names = {name: EtcdNameState(None, "0", 0, to_known(kv)) for name, kv in records.items()}
        for name, kv in holders.items():
            known = names[name].known if name in names else no_record
            names[name] = EtcdNameState(to_hold(kv), kv.get("lease", "0"), int(kv["mod_revision"]), known)
        return names, end

    def _range(
        self, prefix: str, start: str, end: str | None, deadline: float, *, limit: int = 0
    ) -> dict[str, dict[str, Any]]:
        until = after(prefix) if end is None else encoded(prefix + end)
        part = get(encoded(prefix + start), until, limit)
        kvs = found(self._ask("kv/txn", {"success": [part]}, deadline), 0)
        return {decoded(kv["key"])[len(prefix) :]: kv for kv in kvs}


def _record(name: str, now: EtcdNameState, left_s: float | None) -> LeaseRecord:
    hold, last = now.hold, now.known.record
    record = LeaseRecord(
        name=name,
        token=hold.token if hold is not None else now.known.token,
        free_in_s=left_s,
        last_tick_us=now.known.last_tick_us,
    )
    if hold is None or not hold.grant_id:
        return record
    return replace(
        record,
        holder=hold.holder,
        grant_id=hold.grant_id,
        session_id=hold.session_id,
        acquired_at_us=last.acquired_at_us if last is not None else None,
    )
