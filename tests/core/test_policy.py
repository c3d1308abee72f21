import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.policy import (
    BatchType,
    Effects,
    Isolation,
    OnCrash,
    Overlap,
    Policy,
    Reason,
    template_parameters,
)
from fencepost.core.retry import Backoff
from fencepost.errors import ConfigurationError, InvalidDuration, InvalidName, InvalidPolicy

POLICIES = st.builds(
    Policy.of,
    st.sampled_from(BatchType),
    timeout=st.none() | st.floats(min_value=0.001, max_value=86400),
    retries=st.none() | st.integers(0, 10_000),
    isolation=st.none() | st.sampled_from(Isolation),
    chunk=st.none() | st.integers(1, 1_000_000),
    sla=st.none() | st.floats(min_value=0.001, max_value=86400),
    overlap=st.none() | st.sampled_from(Overlap),
    misfire=st.none() | st.sampled_from(["once", "skip", "all", "all:7"]),
    grace=st.none() | st.floats(min_value=0, max_value=86400),
    on_crash=st.none() | st.sampled_from(OnCrash),
    reason=st.none() | st.sampled_from(Reason),
    crash_limit=st.none() | st.integers(1, 1000),
    exclusive=st.none() | st.sampled_from(["nightly", "account:{account}", "{{x}}:{y}"]),
    priority=st.none() | st.integers(-1000, 1000),
    queue=st.none() | st.sampled_from(["default", "heavy"]),
    backoff=st.none() | st.sampled_from(["1s", "1s..9m", {"base": 0.5, "factor": 1.5, "jitter": 0}]),
    effects=st.none() | st.sampled_from(Effects),
)


@pytest.mark.parametrize(
    ("batch", "defaults"),
    [
        ("scheduled", (1800, 1, "read committed", 500, "forbid")),
        ("event", (300, 5, "read committed", 200, "allow")),
        ("manual", (7200, 0, "repeatable read", 1000, "allow")),
        ("bulk", (21600, 2, "repeatable read", 2000, "forbid")),
        ("near-real-time", (120, 3, "read committed", 100, "forbid")),
    ],
)
def test_defaults_are_those_of_the_docs(batch: str, defaults: tuple[object, ...]) -> None:
    policy = Policy.of(batch)
    assert (policy.timeout_s, policy.retries, policy.isolation, policy.chunk, policy.overlap) == defaults
    assert (policy.on_crash, policy.crash_limit, policy.misfire, policy.effects) == ("rerun", 3, "once", "unfenced")
    assert (policy.priority, policy.queue, policy.sla_s, policy.exclusive) == (0, "default", None, None)


def test_every_change_is_read_as_people_write_it() -> None:
    policy = Policy.of(
        "Near_Real_Time", timeout="10m", retries=3, backoff="10s..5m", isolation="READ-COMMITTED", sla="1h", grace=5
    )
    assert policy.type is BatchType.NEAR_REAL_TIME
    assert (policy.timeout_s, policy.sla_s, policy.grace_s) == (600, 3600, 5)
    assert policy.backoff == Backoff(10, 300)
    assert policy.isolation is Isolation.READ_COMMITTED


def test_a_misfire_is_kept_with_the_cap_it_has_by_default() -> None:
    kept = [Policy.of(misfire=each).misfire for each in ("once", "skip", "all", "all:7")]
    assert kept == ["once", "skip", "all:100", "all:7"]


def test_none_means_the_default() -> None:
    assert Policy.of("event", timeout=None, overlap=None, sla=None) == Policy.of("event")


def test_a_name_or_value_that_is_nearly_right_is_refused_with_what_was_meant() -> None:
    with pytest.raises(InvalidPolicy, match=r"a policy has no 'timeuot'; did you mean 'timeout'\?"):
        Policy.of(timeuot="1m")
    with pytest.raises(InvalidPolicy, match=r"overlap 'forbidden' is unknown; did you mean 'forbid'\?"):
        Policy.of(overlap="forbidden")
    with pytest.raises(InvalidPolicy, match="type 'nightly' is unknown; there are: bulk, event"):
        Policy.of("nightly")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"timeout": 0}, "timeout 0 must be more than zero"),
        ({"timeout": "400d"}, "at most 366d"),
        ({"retries": -1}, "retries -1 must be a whole number from 0"),
        ({"retries": True}, "retries True must be"),
        ({"retries": 1.5}, "retries 1.5 must be"),
        ({"retries": "3"}, "retries '3' must be"),
        ({"chunk": 0}, "chunk 0 must be"),
        ({"crash_limit": 0}, "crash_limit 0 must be"),
        ({"priority": 1001}, "from -1000 to 1000"),
        ({"sla": 0}, "sla 0 must be more than zero"),
        ({"misfire": "never"}, "misfire 'never'"),
        ({"misfire": "all:0"}, "misfire"),
        ({"misfire": "once:3"}, "misfire 'once:3'"),
        ({"misfire": 3}, "misfire 3"),
        ({"overlap": 3}, "overlap 3 is unknown"),
        ({"exclusive": ""}, "must be a text"),
        ({"exclusive": "a:{"}, "is not a valid template"),
        ({"exclusive": "a:{}"}, "is not the name of a parameter"),
        ({"exclusive": "{a.b}"}, "is not the name of a parameter"),
        ({"exclusive": "{a[0]}"}, "is not the name of a parameter"),
        ({"exclusive": "{a!r}"}, "is not the name of a parameter"),
        ({"exclusive": "{a:>9}"}, "is not the name of a parameter"),
        ({"exclusive": "x" * 192}, "1 to 191 characters"),
    ],
)
def test_impossible_values_are_refused_in_a_sentence(changes: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidPolicy, match=says):
        Policy.of(**changes)  # type: ignore[arg-type]


def test_other_rules_speak_for_themselves() -> None:
    with pytest.raises(InvalidDuration, match="timeout 'soon'"):
        Policy.of(timeout="soon")
    with pytest.raises(InvalidName, match="queue name"):
        Policy.of(queue="a b")


@given(POLICIES)
def test_a_policy_survives_the_ledger(policy: Policy) -> None:
    assert Policy.from_json(policy.to_json()) == policy
    assert Policy.from_json(policy.to_json()).to_json() == policy.to_json()


def test_every_field_reaches_the_ledger() -> None:
    stored = json.loads(Policy.of(formerly="nightly", search=["day"], reason="always").to_json())
    assert {name.removesuffix("_s") for name in (field.name for field in fields(Policy))} == set(stored)


def test_a_newer_release_may_have_stored_more_and_an_older_one_less() -> None:
    stored = json.loads(Policy.of("bulk", retries=7).to_json())
    del stored["crash_limit"]
    read = Policy.from_json(json.dumps({**stored, "colour": "blue"}))
    assert read == Policy.of("bulk", retries=7)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"type": "x"}', '{"timeout": "x"}', '{"retries": []}', '{"formerly": [{}]}']
)
def test_a_broken_stored_policy_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InvalidPolicy, match="a stored policy cannot be read"):
        Policy.from_json(text)


def test_idempotent_jobs_take_no_lock_unless_asked_to() -> None:
    assert Policy.of("scheduled", effects="idempotent").overlap is Overlap.ALLOW
    assert Policy.of("scheduled", effects="idempotent", overlap="forbid").overlap is Overlap.FORBID
    assert Policy.of("scheduled", effects="fenced").overlap is Overlap.FORBID


def test_only_fenced_jobs_are_suspended_in_doubt() -> None:
    assert [effects for effects in Effects if not Policy.of(effects=effects).stops_in_doubt] == [Effects.FENCED]


def test_a_template_names_its_parameters() -> None:
    assert template_parameters("{{x}}:{account}/{day}") == ("account", "day")


@given(st.dictionaries(st.sampled_from(["timeout", "retries", "overlap", "x", "exclusive", "backoff"]), st.text()))
def test_no_change_is_refused_with_anything_but_an_error_of_ours(changes: dict[str, str]) -> None:
    try:
        Policy.of(**changes)  # type: ignore[arg-type]
    except ConfigurationError as error:
        assert str(error)  # noqa: PT017 - that it is this error is the claim
