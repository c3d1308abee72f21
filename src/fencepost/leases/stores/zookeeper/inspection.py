"""Reads names, for acquisitions and for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from fencepost.core.grants import Grant, LeaseRecord
from fencepost.leases.stores.zookeeper.clock import ZooKeeperClock
from fencepost.leases.stores.zookeeper.link import Link, Request
from fencepost.leases.stores.zookeeper.nodes import ZooKeeperHold, ZooKeeperNameState, ZooKeeperPaths, to_hold, to_known

_PAGE_LENGTH = 100  # names per round trip: each reply is a message of its own


class ZooKeeperInspection:
    """Read-only requests. Each begins with a *sync*, because a server may be behind the leader."""

    def __init__(self, paths: ZooKeeperPaths, clock: ZooKeeperClock) -> None:
        self._paths = paths
        self._clock = clock

    def seen(self, link: Link, name: str, deadline: float) -> ZooKeeperNameState:
        """Return who holds the name, and the record."""
        return self._seen_all(link, [name], deadline)[0]

    def read(self, link: Link, name: str, deadline: float) -> LeaseRecord | None:
        """Return the record of a name."""
        return self._record(name, self.seen(link, name, deadline))

    def records(self, link: Link, new_deadline: Callable[[], float]) -> Iterator[LeaseRecord]:
        """Yield the records of all names, in order."""
        try:
            nodes = link.ask(lambda kazoo: kazoo.get_children_async(self._paths.leases), new_deadline())
        except NoNodeError:
            return
        names = sorted(map(self._paths.name, nodes))
        for start in range(0, len(names), _PAGE_LENGTH):
            page = names[start : start + _PAGE_LENGTH]
            for name, now in zip(page, self._seen_all(link, page, new_deadline()), strict=True):
                if (record := self._record(name, now)) is not None:
                    yield record

    def missing(self, link: Link, grants: list[Grant], deadline: float) -> frozenset[str]:
        """Return the ids of the grants that are not current."""
        requests = [self._sync(), *(_get(self._paths.holder(grant.name)) for grant in grants)]
        _, *answers = link.ask_all(requests, deadline).values
        holds = map(_hold, answers)
        return frozenset(
            grant.grant_id
            for grant, hold in zip(grants, holds, strict=True)
            if hold is None or hold.grant_id != grant.grant_id
        )

    def _seen_all(self, link: Link, names: list[str], deadline: float) -> list[ZooKeeperNameState]:
        requests = [self._sync()]
        for name in names:
            requests += [_get(self._paths.holder(name)), _get(self._paths.record(name))]
        _, *answers = link.ask_all(requests, deadline).values
        return [
            ZooKeeperNameState(_hold(holder), None if isinstance(record, Exception) else to_known(*record))
            for holder, record in zip(answers[::2], answers[1::2], strict=True)
        ]

    def _sync(self) -> Request:
        return lambda kazoo: kazoo.sync_async(self._paths.leases)

    def _record(self, name: str, now: ZooKeeperNameState) -> LeaseRecord | None:
        hold, known = now.hold, now.known
        if known is None or not known.is_granted:
            return None
        if hold is not None:
            return LeaseRecord(
                name=name,
                token=hold.token,
                holder=hold.holder,
                grant_id=hold.grant_id,
                session_id=hold.session_id,
                acquired_at_us=hold.acquired_at_us,
                free_in_s=hold.ttl_s,
                last_tick_us=known.last_tick_us,
            )
        left_us = known.kept_until_us - self._clock.earliest_us()
        free_in_s = left_us / 1_000_000 if left_us > 0 else None
        return LeaseRecord(name=name, token=known.token, free_in_s=free_in_s, last_tick_us=known.last_tick_us)


def _get(path: str) -> Request:
    return partial(_get_async, path)


def _get_async(path: str, kazoo: Any) -> Any:
    return kazoo.get_async(path)


def _hold(answer: Any) -> ZooKeeperHold | None:
    return None if isinstance(answer, Exception) else to_hold(answer[0])
