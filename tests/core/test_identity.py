import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.identity import (
    LONGEST_KEY,
    backfill_key,
    fitted,
    job_name,
    node_name,
    params_hash,
    queue_name,
    request_hash,
    request_key,
    schedule_id,
    tick_key,
)
from fencepost.core.nearest import suggestion
from fencepost.errors import InvalidName

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("name", ["a", "settle", "reports/daily.v2", "x-1", "_x", "정산", "x" * 120, "0"])
def test_ordinary_names_are_taken_as_they_are(name: str) -> None:
    assert job_name(name) == schedule_id(name) == queue_name(name) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "has 0 characters"),
        ("x" * 121, "has 121 characters; it must have 1 to 120"),
        ("a b", "must consist of letters"),
        ("a:b", "must consist of letters"),
        ("a//b", "must consist of letters"),
        ("/a", "must consist of letters"),
        ("a/", "must consist of letters"),
        ("a/../b", "each part must begin with"),
        ("-x", "each part must begin with"),
        ("a\n", "must consist of letters"),
        ("e\u0301te", "must consist of letters"),
        ("\u1112\u1161\u11ab", "NFC"),
        (None, "must be a text, not NoneType"),
    ],
)
def test_odd_names_are_refused_in_one_short_sentence(name: object, says: str) -> None:
    with pytest.raises(InvalidName, match=says) as error:
        job_name(name)
    assert len(str(error.value)) < 200


def test_the_sentence_says_which_kind_of_name_it_was() -> None:
    with pytest.raises(InvalidName, match=r"^schedule id 'a b'"):
        schedule_id("a b")


def test_a_schedule_id_may_have_colons_and_be_longer() -> None:
    assert schedule_id("report:42") == "report:42"
    assert len(schedule_id("x" * 160)) == 160
    with pytest.raises(InvalidName, match="1 to 160"):
        schedule_id("x" * 161)


def test_origin_keys_read_as_what_they_are() -> None:
    assert tick_key("settle", 1_750_000_000_000_000) == "tick:1750000000000000:settle"
    assert backfill_key("settle", 5, "b1") == "backfill:settle:5:b1"
    assert request_key("order-42") == "request:order-42"


def test_the_longest_names_need_no_hash() -> None:
    due_us = 253_402_300_799_999_999
    assert tick_key("x" * 120, due_us).endswith("x" * 120)
    assert backfill_key("x" * 120, due_us, "f" * 32).endswith("f" * 32)


@given(st.text(max_size=400), st.text(max_size=400))
def test_fitted_texts_fit_and_differ_when_the_texts_differ(one: str, other: str) -> None:
    assert len(fitted(one)) <= LONGEST_KEY
    assert fitted(one).isprintable()
    assert (fitted(one) == fitted(other)) == (one == other)


@pytest.mark.parametrize("text", ["a ", " a", "a\x00b", "\ud800", "x" * 192])
def test_what_some_database_would_not_keep_is_hashed(text: str) -> None:
    assert fitted(text) != text
    assert fitted(text).encode()
    assert fitted(text) == fitted(text).strip()


def test_long_texts_that_differ_only_at_their_end_have_different_keys() -> None:
    assert request_key("x" * 300 + "a") != request_key("x" * 300 + "b")


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_request_key_is_a_text(key: object) -> None:
    with pytest.raises(InvalidName, match="key of a request"):
        request_key(key)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_the_order_of_parameters_does_not_matter(params: dict[str, object]) -> None:
    turned = dict(reversed(params.items()))
    assert params_hash("job", params) == params_hash("job", turned)


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.dictionaries(st.text(), st.text(), max_size=4))
def test_other_parameters_have_another_hash(one: dict[str, str], other: dict[str, str]) -> None:
    assert (params_hash("job", one) == params_hash("job", other)) == (one == other)


def test_hashes_tell_jobs_kinds_and_windows_apart() -> None:
    hashes = {
        params_hash("a", {}),
        params_hash("b", {}),
        request_hash("a", {}),
        request_hash("a", {}, window_us=(1, 2)),
        request_hash("a", {}, available_at_us=1),
    }
    assert len(hashes) == 5
    assert all(len(each) == 64 for each in hashes)


def test_the_hash_of_parameters_never_changes_between_releases() -> None:
    assert params_hash("settle", {"b": [1, None], "a": "ü"}) == PINNED


PINNED = "493c562158ea21beb7315c7bb41723a52ab657b633a143b788176a57947d18e4"


def test_two_starts_on_one_host_have_two_names() -> None:
    one = node_name(host="h", pid=1, start_id="a" * 32)
    assert one == "h:1:aaaaaaaa"
    assert one != node_name(host="h", pid=1, start_id="b" * 32)


def test_a_long_or_odd_host_still_gives_a_name_that_fits() -> None:
    name = node_name(host="x y:" * 100, pid=2**22, start_id="0" * 32)
    assert len(name) <= LONGEST_KEY
    assert name.count(":") == 2


def test_a_suggestion_names_the_nearest_word_or_all() -> None:
    assert suggestion("timeuot", ["timeout", "retries"]) == "did you mean 'timeout'?"
    assert suggestion("zzz", ["b", "a"]) == "there are: a, b"
    assert suggestion("zzz", []) == "there are none"
