"""The pure parts of the Kubernetes store: names, records, the server's clock, the time in tokens, sightings."""

import re
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.grants import Session
from fencepost.errors import InvalidUrl
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores.kubernetes import objects
from fencepost.leases.stores.kubernetes.clock import ServerClock, may_have_begun_again, store_time_us
from fencepost.leases.stores.kubernetes.sessions import SessionSightings
from fencepost.threaded import ThreadedRuntime

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
NAMES = st.text(min_size=1, max_size=200).filter(str.isprintable)
SESSION = Session("ab" * 16, "host:1:abcd", 30.0)


@given(NAMES, st.sampled_from(["fencepost", "x", "a" * 20]))
def test_any_name_becomes_a_dns_label(name, prefix):
    made = objects.lock_object_name(prefix, name)
    assert OBJECT_NAME.fullmatch(made)
    assert len(made) <= 63
    assert made.startswith(f"{prefix}-")


@given(st.lists(NAMES, unique=True))
def test_two_names_never_share_an_object(names):
    assert len({objects.lock_object_name("fencepost", name) for name in names}) == len(names)


@pytest.mark.parametrize(("one", "other"), [("a b", "a-b"), ("Job", "job"), ("é", "e"), ("x" * 99, "x" * 98)])
def test_names_that_look_alike_stay_apart(one, other):
    assert objects.lock_object_name("fencepost", one) != objects.lock_object_name("fencepost", other)


def test_a_lock_is_never_named_like_a_session():
    session = objects.session_object_name("fencepost", SESSION.id)
    assert objects.lock_object_name("fencepost", f"session-{SESSION.id}") != session


def as_read(body, version="7"):
    body["metadata"] |= {"resourceVersion": version, "uid": "u1"}
    return body


def test_a_lock_reads_back_as_it_was_written():
    empty = objects.read_lock(as_read(objects.new_lock("fencepost", "a/b c")))
    assert (empty.name, empty.token, empty.grant_id) == ("a/b c", 0, None)
    granted = empty.granted(SESSION, grant_id="g1", token=42, last_tick_us=-5, now_us=1_700_000_000_000_000)
    assert objects.read_lock(as_read(granted.body(30.0))) == granted.__class__(
        **{field: getattr(granted, field) for field in granted.__slots__} | {"metadata": granted.body()["metadata"]}
    )
    freed = objects.read_lock(as_read(granted.freed(last_tick_us=9, kept_until_us=11, released_id="g1").body()))
    assert (freed.token, freed.grant_id, freed.session_id, freed.holder) == (42, None, None, None)
    assert (freed.last_tick_us, freed.kept_until_us, freed.released_id, freed.transitions) == (9, 11, "g1", 1)


def test_what_others_put_on_a_lease_stays():
    lease = as_read(objects.new_lock("fencepost", "a"))
    lease["metadata"]["labels"]["team"] = "blue"
    lease["metadata"]["ownerReferences"] = [{"uid": "x"}]
    body = objects.read_lock(lease).freed(last_tick_us=None).body()
    assert body["metadata"]["labels"]["team"] == "blue"
    assert body["metadata"]["ownerReferences"] == [{"uid": "x"}]


def test_notes_spoilt_by_hand_count_as_missing():
    lease = as_read(objects.new_lock("fencepost", "a"))
    lease["metadata"]["annotations"] |= {objects.TOKEN: "many", objects.LAST_TICK: ""}
    assert objects.read_lock(lease).token == 0
    assert objects.read_lock(lease).last_tick_us is None


def test_times_always_have_six_digits():
    assert objects.micro_time(1_700_000_000_000_000) == "2023-11-14T22:13:20.000000Z"


@given(st.integers(1, 10**12), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 15_000)), min_size=1, max_size=30))
def test_the_time_in_tokens_rises_with_every_write(version, steps):
    """Seconds pass or not, versions rise: the time rises too, unless the version is one that has to wait."""
    date_s, last_us, written_in_a_second = 1_700_000_000, 0, 0
    for seconds, writes in steps:
        written_in_a_second = writes if seconds else written_in_a_second + writes
        date_s, version = date_s + seconds, version + writes
        if written_in_a_second >= 20_000:
            return  # more than an etcd takes
        now_us = store_time_us(date_s, str(version))
        if may_have_begun_again(str(version)):
            date_s += 1  # what the store waits for
            now_us, written_in_a_second = store_time_us(date_s, str(version)), 0
        assert now_us > last_us
        last_us = now_us


def test_a_version_that_is_no_number_leaves_the_second():
    assert store_time_us(17, "abc") == 17_000_000
    assert may_have_begun_again("abc")


def dated(at_s):
    return format_datetime(datetime.fromtimestamp(int(at_s), UTC), usegmt=True)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=40), st.floats(0, 1), st.floats(0.0001, 0.2))
def test_the_servers_clock_lies_within_its_bounds(pauses, phase, latency_s):
    clock, offset, now = ServerClock(), 1_700_000_000 + phase, 100.0
    for pause_s in pauses:
        now += pause_s
        answered_at = now + latency_s / 2
        clock.note(dated(answered_at + offset), sent_at=now, received_at=now + latency_s)
        now += latency_s
        truth_us = (now + offset) * 1e6
        assert clock.earliest_us(now) <= truth_us + 10
        assert clock.latest_us(now) >= truth_us - 10
        assert clock.latest_us(now) - clock.earliest_us(now) <= (1 + latency_s) * 1e6 + 10


def test_a_clock_that_was_set_back_is_believed():
    clock = ServerClock()
    clock.note(dated(1_700_000_000), sent_at=0.0, received_at=0.1)
    clock.note(dated(1_600_000_000), sent_at=1.0, received_at=1.1)
    assert 1_600_000_000 * 10**6 <= clock.earliest_us(1.1) <= clock.latest_us(1.1) < 1_600_000_002 * 10**6
    assert clock.date_s == 1_700_000_000  # tokens do not go back with it


def test_a_header_that_is_no_date_is_passed_over():
    clock = ServerClock()
    clock.note("yesterday", sent_at=0.0, received_at=0.1)
    assert not clock.is_known


def test_a_sighting_counts_from_when_the_version_was_first_seen():
    sightings = SessionSightings()
    seen = objects.SessionObject("s", "u", "5", 3.0)
    assert sightings.note(seen, 10.0).alive_until() == 13.0
    assert sightings.note(seen, 12.0).alive_until() == 13.0
    assert sightings.note(objects.SessionObject("s", "u", "6", 3.0), 12.5).alive_until() == 15.5


@pytest.mark.parametrize(
    "url",
    [
        "kubernetes://Upper",
        "kubernetes://ns:6443",
        "kubernetes://user@ns",
        "kubernetes://ns/path",
        "kubernetes://a,b",
        "kubernetes://ns?prefix=Not_a_label",
        "kubernetes://ns?prefix=aaaaaaaaaaaaaaaaaaaaa",
        "kubernetes://ns?kubeconfg=typo",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url):
    with pytest.raises(InvalidUrl):
        store_from_url(url, ThreadedRuntime())
