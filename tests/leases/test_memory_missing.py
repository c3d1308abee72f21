"""Asking the memory store about somebody else's grant."""

from __future__ import annotations

from fencepost.core.grants import Grant, Session
from fencepost.leases.stores.memory import MemoryStore
from fencepost.threaded import ThreadedRuntime


def test_a_grant_is_known_by_its_name_and_id_to_whoever_does_not_know_its_session():
    store = MemoryStore(ThreadedRuntime())
    session = store.open("holder", ttl_s=30.0, call_timeout_s=3.0)
    grant = store.acquire(session, "node", grant_id="a" * 32)
    as_others_know_it = Grant("node", Session("", "holder", 0.0), grant.grant_id, grant.token)
    assert store.missing([as_others_know_it]) == frozenset()
    store.close(session)
    assert store.missing([as_others_know_it]) == {grant.grant_id}
