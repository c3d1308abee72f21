import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.identity import LONGEST_KEY
from fencepost.core.overlap import Replace, SkipRun, Start, Wait, decide, exclusive_key
from fencepost.core.policy import Overlap, Policy
from fencepost.errors import InvalidParameters

FORBID = Policy.of()
ALLOW = Policy.of(overlap="allow")


def test_a_job_that_allows_overlap_has_no_key() -> None:
    assert exclusive_key("settle", ALLOW, {}) is None


def test_ticks_of_the_declared_schedule_and_requested_runs_share_the_jobs_key() -> None:
    assert exclusive_key("settle", FORBID, {}) == "job:settle"


def test_schedules_made_at_run_time_do_not_block_each_other() -> None:
    keys = {exclusive_key("report", FORBID, {}, runtime_schedule=f"customer:{number}") for number in range(1000)}
    assert len(keys) == 1000
    assert "job:report" not in keys


# Few letters, so that names made of the same parts in other ways are met often.
NAMES = st.from_regex(r"[ab](/[ab]){0,2}", fullmatch=True)
IDS = st.none() | st.from_regex(r"[ab]([/:][ab]){0,2}", fullmatch=True)


@given(NAMES, IDS, NAMES, IDS)
def test_different_jobs_and_schedules_never_share_a_key(
    job: str, schedule: str | None, other_job: str, other_schedule: str | None
) -> None:
    same = (job, schedule) == (other_job, other_schedule)
    one = exclusive_key(job, FORBID, {}, runtime_schedule=schedule)
    assert (one == exclusive_key(other_job, FORBID, {}, runtime_schedule=other_schedule)) == same


@pytest.mark.parametrize(
    ("template", "params", "key"),
    [
        ("nightly", {}, "nightly"),
        ("account:{account}", {"account": 42}, "account:42"),
        ("account:{account}", {"account": "a b"}, "account:a b"),
        ("{{{a}}}/{b}", {"a": True, "b": [1, {"x": None}]}, '{true}/[1,{"x":null}]'),
    ],
)
def test_the_template_is_filled_from_the_parameters(template: str, params: dict[str, object], key: str) -> None:
    assert exclusive_key("job", Policy.of("event", exclusive=template), params, runtime_schedule="s") == key


@pytest.mark.parametrize("params", [{}, {"account": None}, {"acount": 1}])
def test_a_missing_parameter_is_named_when_the_run_is_made(params: dict[str, object]) -> None:
    with pytest.raises(InvalidParameters, match=r"job 'pay' needs the parameter 'account'.*'account:{account}'"):
        exclusive_key("pay", Policy.of(exclusive="account:{account}"), params)


@given(st.text(max_size=500))
def test_every_key_fits_and_values_are_never_read_as_templates(value: str) -> None:
    policy = Policy.of(exclusive="a:{value}")
    key = exclusive_key("job", policy, {"value": value})
    assert key is not None
    assert len(key) <= LONGEST_KEY
    assert key.startswith("a:") or not value.isprintable()


@given(st.sampled_from(Overlap), st.booleans(), st.integers(0, 3))
def test_a_free_key_always_starts(overlap: Overlap, is_tick: bool, attempts: int) -> None:
    assert decide(overlap, is_tick=is_tick, attempts=attempts, key_is_taken=False) == Start()


@pytest.mark.parametrize(
    ("overlap", "tick", "request_", "retry"),
    [
        ("forbid", SkipRun, Wait, Wait),
        ("queue", Wait, Wait, Wait),
        ("replace", Replace, Replace, Wait),
        ("allow", Wait, Wait, Wait),
    ],
)
def test_what_becomes_of_a_run_whose_key_is_taken(overlap: str, tick: type, request_: type, retry: type) -> None:
    def kind(*, is_tick: bool, attempts: int) -> type:
        return type(decide(Overlap(overlap), is_tick=is_tick, attempts=attempts, key_is_taken=True))

    assert kind(is_tick=True, attempts=0) is tick
    assert kind(is_tick=False, attempts=0) is request_
    assert kind(is_tick=True, attempts=1) is retry
    assert kind(is_tick=False, attempts=2) is retry


@given(st.sampled_from(Overlap), st.booleans(), st.integers(1, 5))
def test_what_has_begun_is_never_skipped(overlap: Overlap, is_tick: bool, attempts: int) -> None:
    assert not isinstance(decide(overlap, is_tick=is_tick, attempts=attempts, key_is_taken=True), SkipRun | Start)


def test_a_skip_says_why() -> None:
    decision = decide(Overlap.FORBID, is_tick=True, attempts=0, key_is_taken=True)
    assert isinstance(decision, SkipRun)
    assert "has not ended" in decision.reason
