import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fencepost.core.texts import beginning, end, scrub, shown, storable

PASSWORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=12, max_size=60)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgresql://app:s3cret@db:5432/x", "postgresql://app:***@db:5432/x"),
        ("redis://:s3cret@cache", "redis://:***@cache"),
        ("two: a://b:c@d and e://f:g@h.", "two: a://b:***@d and e://f:***@h."),
        ("a://u:p@ss/w?o#rd@host/path", "a://u:***@host/path"),
        ("a://user@host and mail@host", "a://user@host and mail@host"),
        ("http://host:80/path", "http://host:80/path"),
        ("host=db password=s3cret user=x", "host=db password=*** user=x"),
        ("connect(password='s 3', user=x)", "connect(password=***, user=x)"),
        ('{"password": "s3cret", "user": "x"}', '{"password": ***, "user": "x"}'),
        ("?sslpassword=s3cret&x=1", "?sslpassword=***&x=1"),
        ("password authentication failed", "password authentication failed"),
        ("wrong password: try again", "wrong password: try again"),
    ],
)
def test_passwords_are_masked_and_the_rest_is_left(text: str, clean: str) -> None:
    assert scrub(text) == clean


@given(PASSWORDS, st.text(max_size=5000), st.text(max_size=5000))
def test_no_password_of_a_url_survives_wherever_it_stands_and_wherever_the_cut_is(
    password: str, before: str, after: str
) -> None:
    pieces = {password[at : at + 8] for at in range(len(password) - 7)}
    assume(not any(piece in f"{before} postgresql://app:***@db/x {after}" for piece in pieces))
    text = f"{before} postgresql://app:{password}@db/x {after}"
    for kept in (cut(text, longest) for cut in (beginning, end) for longest in (30, 100, 300, 4000)):
        assert not any(piece in kept for piece in pieces)


@given(st.text(st.characters(codec=None), max_size=200), st.integers(1, 50))
def test_kept_texts_are_bounded_and_storable(text: str, longest: int) -> None:
    for kept in (beginning(text, longest), end(text, longest)):
        assert len(kept) <= longest
        assert "\x00" not in kept
        assert kept.encode().decode() == kept


def test_a_cut_is_shown() -> None:
    assert beginning("abcdef", 4) == "abc…"
    assert end("abcdef", 4) == "…def"
    assert beginning("abcd", 4) == end("abcd", 4) == "abcd"


def test_what_databases_refuse_is_spelled_out() -> None:
    assert storable("a\x00b\ud800c") == "a\\x00b\\ud800c"


def test_scrubbing_a_hostile_text_takes_no_time_worth_mentioning() -> None:
    assert scrub("://a:" * 3000).count("://a:") == 3000


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Odd()) == "a Odd"
    assert shown("redis://u:p@h") == "'redis://u:***@h'"
    assert len(shown("x" * 1000)) == 60
