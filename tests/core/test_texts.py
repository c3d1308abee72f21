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
        ("GET https://api/x?access_token=abc.def&day=3", "GET https://api/x?access_token=***&day=3"),
        ("https://blob/x?sv=1&sig=aGVs%2Fbo%3D&se=2", "https://blob/x?sv=1&sig=***&se=2"),
        (
            "https://s3/x?X-Amz-Signature=ab12&X-Amz-Security-Token=cd34",
            "https://s3/x?X-Amz-Signature=***&X-Amz-Security-Token=***",
        ),
        ("Authorization: Bearer abc.def-1", "Authorization: ***"),
        ("{'Authorization': 'Bearer abc.def-1', 'Accept': 'x'}", "{'Authorization': ***, 'Accept': 'x'}"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "{'authorization': ***}"),
        ("authorization=Bearer abc1 x=2", "authorization=*** x=2"),
        ("refused: bearer abcdefgh12", "refused: bearer ***"),
        ("Basic authentication failed", "Basic authentication failed"),
        ("Set-Cookie: session=abc; Path=/\nnext", "Set-Cookie: ***\nnext"),
        ("AWS_SECRET_ACCESS_KEY=wJalr/K7 x", "AWS_SECRET_ACCESS_KEY=*** x"),
        ("Client(api_key='k-1', n=2)", "Client(api_key=***, n=2)"),
        ('{"client_secret": "s", "n": 2}', '{"client_secret": ***, "n": 2}'),
        ('"{\\"refresh_token\\": \\"s3cret\\"}"', '"{\\"refresh_token\\": ***}"'),
        ("AccountName=x;AccountKey=abc==;End", "AccountName=x;AccountKey=***;End"),
        ("https://ghp-abc@github.com/x", "https://***@github.com/x"),
        ("token=abc-def", "token=***"),
        ("token=1794733205004021 lock=x", "token=1794733205004021 lock=x"),
        ("Unexpected token: '}'", "Unexpected token: '}'"),
        ("key=order-1 reason='the key: x'", "key=order-1 reason='the key: x'"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl", "***"),
        ("ghp_abcdefghijklmnopqrstuvwx", "***"),
        ("glpat-abcdefghij_klmnopqrst", "***"),
        ("{'Cookie': 'sid=abc', 'n': 2}", "{'Cookie': ***, 'n': 2}"),
        ("[(b'cookie', b'sid=abc'), ('n', 2)]", "[(b'cookie', ***), ('n', 2)]"),
        ("Headers([('authorization', 'Bearer abc')])", "Headers([('authorization', ***)])"),
        ('Authorization: Digest username="u", response="ab12"', "Authorization: ***"),
        ('{"password": "a \\"quoted\\" one", "n": 2}', '{"password": ***, "n": 2}'),
        ('{"password": ["one", "two"], "n": 2}', '{"password": ***, "n": 2}'),
        ('{"token": {"value": "one"}, "n": 2}', '{"token": ***, "n": 2}'),
        ("cannot read:\ndb_password: s3cret\nhost: x", "cannot read:\ndb_password: ***\nhost: x"),
        ("<soap:Password Type='t'>s3cret</soap:Password>", "<soap:Password Type='t'>***</soap:Password>"),
        ("[SQL: ALTER ROLE app PASSWORD 's3cret']", "[SQL: ALTER ROLE app PASSWORD ***]"),
        ("CREATE USER app IDENTIFIED BY 's3cret'", "CREATE USER app IDENTIFIED BY ***"),
        ("DB_PASS=s3cret x=1", "DB_PASS=*** x=1"),
        ("https://maps/x?key=AbC&day=3", "https://maps/x?key=***&day=3"),
        ("cannot run load --api-token abc --day 3", "cannot run load --api-token *** --day 3"),
        ("token 7 of --token: give --token --day 3", "token 7 of --token: give --token --day 3"),
        ("bearer token has expired", "bearer token has expired"),
        ("SELECT id, token, grant_id FROM fence WHERE key = 1", "SELECT id, token, grant_id FROM fence WHERE key = 1"),
        ("knows no 'token', 'user'", "knows no 'token', 'user'"),
        ("secret=" + "s" * 3000, "secret=***"),
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


@pytest.mark.parametrize(
    "hostile", ["://a:", "token=", "Authorization: ", "eyJaaaaaaaaa.", "Bearer a", "secret'", "\n ", "('token', '"]
)
def test_scrubbing_any_hostile_text_ends(hostile: str) -> None:
    assert len(scrub(hostile * 3000)) <= len(hostile) * 3000


def test_scrubbing_a_hostile_text_takes_no_time_worth_mentioning() -> None:
    assert scrub("://a:" * 3000).count("://a:") == 3000


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Odd()) == "a Odd"
    assert shown("redis://u:p@h") == "'redis://u:***@h'"
    assert len(shown("x" * 1000)) == 60
