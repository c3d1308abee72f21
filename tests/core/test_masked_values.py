"""Values of secrets: every usual spelling is masked, in texts, in JSON, and in streams however they are cut."""

from __future__ import annotations

import base64
import copy
import html
import itertools
import json
import pickle
import random
import re
import sys
import textwrap
import urllib.parse
import xml.sax.saxutils
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core import masked_values
from fencepost.core.known_forms import KnownForms
from fencepost.core.masked_values import MaskedValues, StreamMask
from fencepost.core.output_frames import Kept, OutputSplitter, mark_of, secret_frames
from fencepost.core.parameters import Signature
from fencepost.core.secret import Secret
from fencepost.core.told_values import ToldValues
from fencepost.errors import InvalidJob, InvalidParameters, SecretUnavailable

VALUE = "s3c\"ret' é/+%\\"


def known(*values: str) -> MaskedValues:
    made = MaskedValues()
    for each in values:
        made.add(each)
    return made


@pytest.mark.parametrize(
    "spelled",
    [VALUE, repr(VALUE), repr([VALUE]), json.dumps(VALUE), json.dumps(VALUE, ensure_ascii=False), repr(VALUE.encode()),
     urllib.parse.quote(VALUE), urllib.parse.quote(VALUE, safe=""), urllib.parse.quote_plus(VALUE), html.escape(VALUE),
     base64.b64encode(VALUE.encode()).decode(), base64.urlsafe_b64encode(VALUE.encode()).decode()],
)  # fmt: skip
def test_every_usual_spelling_is_masked(spelled: str) -> None:
    masked = known("another", VALUE).masked(f"before {spelled} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert masked.count("***") == 1
    assert len(masked) <= len("before [b'***'] after")


def requests_url(value: str) -> str:
    return str(pytest.importorskip("requests").utils.requote_uri(value))


def urllib3_path(value: str) -> str:
    return str(pytest.importorskip("urllib3").util.parse_url(f"https://host/{value}").url)


def jinja2_page(value: str, page: str = '<td title="{{ value }}">') -> str:
    jinja2 = pytest.importorskip("jinja2")
    return str(jinja2.Environment(autoescape=True).from_string(page).render(value=value))


def django_page(value: str, function: str = "escape") -> str:
    return str(getattr(pytest.importorskip("django.utils.html"), function)(value))


def with_small_digits(coded: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), coded)


ENCODERS: dict[str, Callable[[str], str]] = {
    "requests": requests_url,
    "urllib3": urllib3_path,
    "urlencode": lambda value: urllib.parse.urlencode({"key": value}),
    "urlencode with %20": lambda value: urllib.parse.urlencode({"key": value}, quote_via=urllib.parse.quote),
    "encodeURIComponent": lambda value: urllib.parse.quote(value, safe="!'()*"),
    "URLSearchParams": lambda value: urllib.parse.quote_plus(value, safe="*").replace("~", "%7E"),
    "small digits": lambda value: with_small_digits(urllib.parse.quote(value, safe="")),
    "small digits in a form": lambda value: with_small_digits(urllib.parse.quote_plus(value)),
    "Jinja2": jinja2_page,
    "Django": django_page,
    "html without quotes": lambda value: html.escape(value, quote=False),
    "XML": xml.sax.saxutils.quoteattr,
    "XML with entities": lambda value: xml.sax.saxutils.escape(value, {"'": "&apos;", '"': "&quot;"}),
    "PHP in HTML": lambda value: html.escape(value).replace("&#x27;", "&#039;"),
    "repr in a dictionary": lambda value: repr({"key": value}),
    "repr of an exception": lambda value: repr(ValueError(f'"{value}" isn\'t good')),
    "repr of bytes": lambda value: repr(f'"{value}" isn\'t good'.encode()),
    "ascii": ascii,
    "JSON for PHP": lambda value: json.dumps(value).replace("/", "\\/"),
    "JSON for Go": lambda value: (
        json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    ),
    "JSON in a script": lambda value: json.dumps(value).replace("<", "\\u003c"),
    "JSON for Jinja2": lambda value: jinja2_page(value, "{{ value|tojson }}"),
    "JSON for Django": lambda value: str(pytest.importorskip("django.utils.html").json_script(value, "id")),
}


@pytest.mark.parametrize(
    "value",
    ["pa'ss<w>ord1", 'pa"ss&word1', 'it\'s "both" & <more>', "p@ss w(rd)!x/y~z*[9];é=+,:$", "it's-secret-9", "1%2F%9"],
)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_usual_libraries_make_of_a_value_is_masked(encoder: str, value: str) -> None:
    encode = ENCODERS[encoder]
    masked, expected = known(value).masked(encode(value)), encode("VALUE").replace("VALUE", "***")
    assert masked.replace("'", '"') == expected.replace("'", '"')


@pytest.mark.parametrize("width", [76, 64])
def test_lines_of_base64_are_masked_together(width: int) -> None:
    value = "a longer value, such as a key? ~~~ " * 9
    wrapped = "\n".join(textwrap.wrap(base64.b64encode(value.encode()).decode(), width))
    assert known(value).masked(f"<{wrapped}>").rstrip("=>") == "<***"
    assert known(value).masked(repr(f"<{wrapped}>")).rstrip("=>'") == "'<***"
    assert known(value).masked(base64.encodebytes(value.encode()).decode()).rstrip("=\n") == "***"


@pytest.mark.parametrize("value", ["abc12\n", "  abc12", "abc12\r\n"])
def test_value_is_masked_without_the_spaces_and_line_breaks_around_it(value: str) -> None:
    values = known(value)
    assert values.masked("key=abc12.") == "key=***."
    space = value[: -len(value.lstrip())]  # of which nothing has to be masked
    assert values.masked(f"key={value}.") == f"key={space}***."
    assert values.masked(f"key={base64.b64encode(b'abc12').decode()}").rstrip("=") == "key=***"
    assert known("abc \n").masked("abc") == "abc"


def test_value_of_letters_and_digits_has_no_more_forms_than_it_needs() -> None:
    assert sorted(masked_values._forms_of("a-token_9.A")) == [b"YS10b2tlbl85LkE", b"a-token_9.A"]


def test_lines_of_a_long_value_are_masked_one_by_one() -> None:
    values = known("-----BEGIN KEY-----\nMIIEpAIBAAKC\nab==\n-----END KEY-----")
    assert values.masked("> MIIEpAIBAAKC <") == "> *** <"
    assert values.masked("ab==") == "ab=="


def test_json_stays_json_without_them() -> None:
    values = known("1234", VALUE)
    text = json.dumps({"a": VALUE, VALUE: [1234, 12.5, {"b": f"x{VALUE}x"}], "c": None, "d": True})
    assert json.loads(values.masked_json(text)) == {
        "a": "***",
        "***": ["***", 12.5, {"b": "x***x"}],
        "c": None,
        "d": True,
    }
    assert values.masked_json('{"a": 7}') == '{"a": 7}'


def as_far_as_any_reaches(values: list[str], text: str) -> str:
    """Mask what is under any of the values, with one mask for those that overlap: slow, and simple."""
    spans = sorted(
        (start, start + len(value)) for start in range(len(text)) for value in values if text.startswith(value, start)
    )
    masked, place = "", 0
    for start, end in spans:
        if start >= place:
            masked += text[place:start] + "***"
        place = max(place, end)
    return masked + text[place:]


@given(
    st.lists(st.text("ab", min_size=4, max_size=8), min_size=1, max_size=4, unique=True)
    | st.lists(st.sampled_from(["abcabcabd", "secret-one", "secret-one-b", "one-two-"]), min_size=1, unique=True),
    st.lists(st.sampled_from(["a", "b", "abc", "secret-", "one", "-", "two-", "x", "é", "\n"]), max_size=30),
    st.lists(st.integers(0, 100), max_size=12),
    st.booleans(),
)
def test_all_that_any_value_covers_is_masked_in_texts_and_in_streams_however_they_are_cut(
    values: list[str], words: list[str], cuts: list[int], are_many: bool
) -> None:
    known_values = MaskedValues()
    others = [f"other {number} that is not there" for number in range(10, 10 + 90 * are_many)]
    others += [f"{number} others, too" for number in range(10, 10 + 90 * are_many)]
    known_values._values = {value: (value.encode(),) for value in [*values, *others]}
    known_values._known = KnownForms(value.encode() for value in [*values, *others])
    text = "".join(words)
    expected = as_far_as_any_reaches(values, text)
    assert known_values.masked(text) == expected
    stream = text.encode()
    mask, places = StreamMask(known_values), sorted({min(each, len(stream)) for each in cuts} | {0, len(stream)})
    passed = [mask.masked(stream[start:end]) for start, end in itertools.pairwise(places)]
    assert b"".join(passed) + mask.rest() == expected.encode()


def test_value_that_begins_with_another_is_masked_to_its_end_in_two_writes() -> None:
    mask = StreamMask(known("hunter2x", "hunter2x-prod-9f8e7d6c"))
    pieces = [mask.masked(b"P:hunter2x"), mask.masked(b"-prod-9f8e7d6c\nP:hunter2x"), mask.rest()]
    assert b"".join(pieces) == b"P:***\nP:***"


def test_values_that_overlap_are_masked_together() -> None:
    assert known("abcdXYZ1", "XYZ12345678").masked("<abcdXYZ12345678>") == "<***>"


def test_value_that_repeats_itself_does_not_make_a_stream_wait_for_its_end() -> None:
    mask = StreamMask(known("xyxy"))
    assert mask.masked(b"xyxy" * 1000) == b"***"
    assert len(mask._held) < 4
    assert mask.masked(b"xy" * 1000) + mask.masked(b" xyx") + mask.rest() == b" xyx"


def test_value_is_told_before_each_use_and_short_ones_are_none() -> None:
    values, told = MaskedValues(), list[tuple[str, str]]()
    values.told = lambda value: told.append((value, values.masked(value)))
    for each in ("first-value", "first-value", "abc", "second-value"):
        values.add(each)
    assert told == [("first-value", "first-value"), ("first-value", "***"), ("second-value", "second-value")]
    assert values.masked("abc first-value") == "abc ***"


def steps(call: Callable[[], object]) -> int:
    """Count the calls that Python makes."""
    made = 0

    def count(*_: Any) -> None:
        nonlocal made
        made += 1

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return made


def test_each_value_is_added_and_each_line_searched_in_as_many_steps_however_many_are_known() -> None:
    values, line = MaskedValues(), b"a line of output of eighty characters, as most are, or nearly so\n"
    mask, counted = StreamMask(values), list[tuple[int, int]]()
    for number in range(100):
        added = steps(lambda number=number: values.add(f"{number:05}token"))
        counted.append((added, steps(lambda: mask.masked(line))))
    assert max(counted[20:]) < (400, 60)
    assert counted[99] <= (counted[20][0] + 10, counted[20][1] + 10)
    assert mask.masked(b"<00000token 00099token>\n") == b"<*** ***>\n"


def test_very_many_different_values_in_one_piece_are_all_masked() -> None:
    values = [f"{number:05}token" for number in range(500)]
    assert known(*values).masked_bytes("é".join(values).encode()).decode() == "é".join(["***"] * 500)
    assert known(*values).masked("é".join(values)) == "é".join(["***"] * 500)


def test_memory_for_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_values, "_MOST", 3)
    monkeypatch.setattr(masked_values, "_AT_ONCE", 0)
    values = known(*(f"value-{number}" for number in range(5)))
    assert values.masked("value-0 value-1 value-4") == "value-0 *** ***"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only three values are kept that nobody holds."""
    monkeypatch.setattr(masked_values, "_MOST", 3)
    monkeypatch.setattr(masked_values, "_AT_ONCE", 0)


def test_value_that_is_used_again_is_forgotten_later(few: None) -> None:
    values = known("static-value", "value-1", "value-2", "static-value", "value-3", "value-4", "value-5")
    assert values.masked("static-value value-1 value-2 value-3") == "*** value-1 value-2 ***"


def test_value_that_somebody_holds_is_never_forgotten(few: None) -> None:
    values = known("value-0")
    held = [values.add("value-1"), values.add("value-1")]
    for number in range(2, 9):
        values.add(f"value-{number}")
    assert values.masked("value-0 value-1 value-4 value-5") == "value-0 *** value-4 ***"
    held.pop()
    values.add("value-9")
    assert values.masked("value-1") == "***"
    held.pop()
    values.add("value-a")
    values.add("value-b")
    assert values.masked("value-1 value-9") == "value-1 ***"


@pytest.mark.parametrize("moment", range(3))
def test_value_that_another_thread_uses_while_values_are_forgotten_stays(few: None, moment: int) -> None:
    """It is used again before, while and after the others are gone through."""
    values = known("value-1", "value-2", "value-3")
    held, looked_up, moments = list[object](), values._held_values, itertools.count()

    def look_up() -> set[str]:
        found = looked_up()
        if next(moments) == moment:
            held.append(values.add("value-1"))
        return found

    values._held_values = look_up  # type: ignore[method-assign]
    for number in range(4, 10):
        values.add(f"value-{number}")
    values._held_values = looked_up  # type: ignore[method-assign]
    values.add("value-a")
    assert values.masked("value-1 value-2 value-a") == "*** value-2 ***"


def test_supervisor_keeps_whatever_a_worker_does_not_tell_it_again() -> None:
    worker, supervisor, chance = ToldValues(), ToldValues(), random.Random(3)
    for number in range(5000):
        for value in (f"static-{chance.randrange(9)}", f"leased-{number}"):
            if not worker.is_recent(value):
                worker.add(value)
                supervisor.add(value)
            assert value in supervisor._values
    assert len(supervisor._values) == 200


@pytest.mark.parametrize("size", [10, 4096, 8000])
def test_frames_bring_a_value_of_any_size_and_nothing_of_it_is_passed_on(size: int) -> None:
    mark, value = mark_of("12ab"), bytes(range(48, 58)) * (size // 10)
    frames = list(secret_frames(mark, value))
    assert all(len(frame) <= 4096 for frame in frames)
    splitter, stream = OutputSplitter(mark), b"before" + b"".join(frames) + b"after"
    pieces = [piece for place in range(0, len(stream), 777) for piece in splitter.split(stream[place : place + 777])]
    kept = [piece for piece in pieces if isinstance(piece, Kept)]
    assert b"".join(piece.text for piece in kept) == value
    assert [piece.is_last for piece in kept] == [False] * (len(kept) - 1) + [True]
    assert b"".join(piece for piece in pieces if isinstance(piece, bytes)) == b"beforeafter"


def test_secret_shows_its_name_and_cannot_be_stored() -> None:
    secret = Secret.of("the value", "stripe")
    assert f"{secret} {secret!r} {[secret]}" == "Secret('stripe') Secret('stripe') [Secret('stripe')]"
    assert (secret.reveal(), secret.name, copy.deepcopy(secret) == secret) == ("the value", "stripe", True)
    assert Secret("stripe") != secret
    for store in (pickle.dumps, json.dumps):
        with pytest.raises(TypeError):
            store(secret)
    with pytest.raises(SecretUnavailable, match="running job"):
        Secret("stripe").reveal()


@pytest.mark.parametrize("name", ["", "a b", "../x", ".x", "a/b", "x" * 101, 7, None, "a\n"])
def test_name_that_may_be_a_value_is_refused_and_not_repeated(name: Any) -> None:
    with pytest.raises(InvalidParameters) as refused:
        Secret(name)
    assert not name or str(name) not in str(refused.value).replace("1 to 100", "")


def charge(key: Secret[str], other: Secret[str] | None = None, usual: Secret[str] = Secret("usual")) -> None: ...  # noqa: B008


def test_names_of_secrets_are_parameters_and_values_given_by_mistake_are_in_no_error() -> None:
    signature = Signature.of(charge)
    assert [each.name for each in signature.secrets] == ["key", "other", "usual"]
    assert signature.validate({"key": Secret("a"), "other": "b"}) == {"key": "a", "other": "b"}
    assert signature.coerce_text({"key": " a "}) == {"key": "a"}
    assert signature.bind({"key": "a"}) == {"key": Secret("a")}
    stored = Signature.from_json(signature.to_json())
    assert stored.validate({"key": "a", "other": None}) == {"key": "a", "other": None}
    for one in (signature, stored):
        for params in ({"key": "sk live"}, {"key": "a", "other": "sk live"}, {"key": ["sk live"]}):
            with pytest.raises(InvalidParameters) as refused:
                one.validate(params)
            assert "sk live" not in str(refused.value)


def test_secrets_inside_of_something_else_are_refused() -> None:
    def in_a_list(keys: list[Secret[str]]) -> None: ...
    def in_a_dict(keys: dict[str, Secret[str]]) -> None: ...
    def or_text(key: Secret[str] | str) -> None: ...
    def of_bytes(key: Secret[bytes]) -> None: ...

    for function in (in_a_list, in_a_dict, or_text, of_bytes):
        with pytest.raises(InvalidJob, match="Secret"):
            Signature.of(function)

    def not_imported(key: Any) -> None: ...

    not_imported.__annotations__["key"] = "Unknown.Secret[str]"
    with pytest.raises(InvalidJob, match="run time"):
        Signature.of(not_imported)
