import enum
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.annotations import kind_of
from fencepost.core.kinds import ANYTHING, DEEPEST, json_value
from fencepost.core.parameters import Signature
from fencepost.errors import InvalidJob, InvalidParameters
from tests.core import signatures_with_text

Account = NewType("Account", int)


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(enum.Enum):
    SMALL = (1, 2)
    LARGE = (3, 4)


class Run:
    """Any class of this name is the run."""


def settle(run, account: int, day: date, rate: Decimal = Decimal(1), note: str | None = None): ...


SETTLE = Signature.of(settle)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)

ANNOTATED = [
    (int, st.integers(-(2**60), 2**60)),
    (float, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)),
    (str, st.text()),
    (bool, st.booleans()),
    (date, st.dates()),
    (datetime, st.datetimes() | st.datetimes(timezones=st.just(UTC))),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Literal["a", "1", 1, True], st.sampled_from(["a", "1", 1, True])),
    (int | None, st.none() | st.integers(-100, 100)),
    (Optional[date], st.none() | st.dates()),  # noqa: UP045 - the older spelling is in use, too
    (list[date], st.lists(st.dates())),
    (Sequence[int], st.lists(st.integers(-100, 100))),
    (
        Mapping[str, list[Decimal]],
        st.dictionaries(
            st.text(), st.lists(st.decimals(allow_nan=False, allow_infinity=False), max_size=3), max_size=3
        ),
    ),
    (list, st.lists(JSON, max_size=4)),
    (dict, st.dictionaries(st.text(), JSON, max_size=4)),
    (Account, st.integers(0, 100)),
    (Any, JSON),
    (object, JSON),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
]

NAMES = [str(annotation) for annotation, _ in ANNOTATED]


def taking(annotation: object) -> Signature:
    def function(x): ...

    function.__annotations__["x"] = annotation
    return Signature.of(function)


@pytest.mark.parametrize(("annotation", "values"), ANNOTATED, ids=NAMES)
def test_every_value_of_an_annotation_reaches_the_function_as_it_was(
    annotation: object, values: st.SearchStrategy
) -> None:
    signature = taking(annotation)

    @given(values)
    def survives(value: object) -> None:
        stored = json.loads(json.dumps(signature.validate({"x": value})))
        bound = signature.bind(stored)["x"]
        assert bound == value
        assert type(bound) is type(value)

    survives()


@pytest.mark.parametrize(("annotation", "values"), ANNOTATED, ids=NAMES)
def test_the_stored_signature_checks_like_the_original(annotation: object, values: st.SearchStrategy) -> None:
    original = taking(annotation)
    stored = Signature.from_json(original.to_json())
    assert stored.to_json() == original.to_json()

    def verdict(signature: Signature, value: object) -> object:
        try:
            return signature.validate({"x": value})
        except InvalidParameters as error:
            return str(error)

    @settings(max_examples=40)  # for each of the 22 annotations
    @given(values, JSON)
    def agree(value: object, anything: object) -> None:
        as_json = original.validate({"x": value})["x"]
        assert verdict(stored, as_json) == verdict(original, as_json)
        assert verdict(stored, anything) == verdict(original, anything)

    agree()


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "3", 3),
        (int, "-3", -3),
        (float, "1e3", 1000.0),
        (str, "3", "3"),
        (bool, "YES", True),
        (bool, "0", False),
        (date, "2026-01-31", date(2026, 1, 31)),
        (datetime, "2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        (Decimal, "0.10", Decimal("0.10")),
        (UUID, "12345678123456781234567812345678", UUID(int=0x12345678123456781234567812345678)),
        (Colour, "red", Colour.RED),
        (Colour, "BLUE", Colour.BLUE),
        (Size, "SMALL", Size.SMALL),
        (Literal["a", 1], "1", 1),
        (Literal["1", 1], "1", "1"),
        (int | None, "null", None),
        (int | None, "5", 5),
        (str | int, "5", 5),
        (str | None, "none", "none"),
        (list[int], "1, 2,3", [1, 2, 3]),
        (list[int], "[1,2]", [1, 2]),
        (list[str], "", []),
        (list[date], "2026-01-31,2026-02-01", [date(2026, 1, 31), date(2026, 2, 1)]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Any, "3", 3),
        (Any, '{"a": [null]}', {"a": [None]}),
        (Any, "hello", "hello"),
        (Any, "NaN", "NaN"),
        pytest.param(Any, "[" * 100_000, "[" * 100_000, id="deep"),
    ],
)
def test_typed_text_becomes_what_the_parameter_asks_for(annotation: object, text: str, value: object) -> None:
    signature = taking(annotation)
    if len(text) < 1000:
        bound = signature.bind(signature.validate(signature.coerce_text({"x": text})))["x"]
    else:
        bound = signature.coerce_text({"x": text})["x"]
    assert bound == value
    assert type(bound) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "says"),
    [
        (int, "three", "parameter 'x' must be a whole number, not 'three'"),
        (int, "1_000", "whole number"),
        pytest.param(int, "9" * 5000, "whole number", id="large"),
        (float, "nan", "must be a number"),
        (bool, "maybe", "must be true or false"),
        (date, "31.1.2026", "must be a date such as 2026-01-31, not '31.1.2026'"),
        (Decimal, "NaN", "decimal"),
        (Colour, "green", "must be one of 'red', 'blue', not 'green'"),
        (list[int], "1,x", r"parameter 'x'\[1\] must be a whole number"),
        (list[int], "[1", "must be a list, written as JSON"),
        (dict[str, int], "a=1", "must be a dictionary, written as JSON"),
        (int | None, "x", "must be a whole number or null"),
    ],
)
def test_typed_text_that_is_wrong_is_refused_in_a_sentence(annotation: object, text: str, says: str) -> None:
    with pytest.raises(InvalidParameters, match=says):
        taking(annotation).coerce_text({"x": text})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, True),
        (int, "3"),
        (int, 3.0),
        pytest.param(int, 10**5000, id="large"),
        (float, True),
        (float, float("nan")),
        (float, "1"),
        (str, 3),
        (bool, 1),
        (date, datetime(2026, 1, 1)),
        (date, "soon"),
        (date, 20260101),
        (datetime, date(2026, 1, 1)),
        (Decimal, float("inf")),
        (Decimal, True),
        (UUID, 7),
        (Colour, "RED"),
        (Colour, Size.SMALL),
        (Literal[1], True),
        (list[int], "12"),
        (list[int], {1, 2}),
        (dict[str, int], [("a", 1)]),
        (dict[str, int], {1: 1}),
        (int | str, None),
    ],
)
def test_a_value_of_another_type_is_refused(annotation: object, value: object) -> None:
    with pytest.raises(InvalidParameters, match="parameter 'x'"):
        taking(annotation).validate({"x": value})


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidParameters) as error:
        SETTLE.validate({"acount": 1, "day": "soon"}, job="settle")
    assert str(error.value) == (
        "job 'settle': there is no parameter 'acount'; did you mean 'account'?; "
        "parameter 'day' must be a date such as 2026-01-31, not 'soon'; parameter 'account' must be given"
    )


def test_the_run_is_no_parameter() -> None:
    assert SETTLE.names == ("account", "day", "rate", "note")
    with pytest.raises(InvalidParameters, match="no parameter 'run'"):
        SETTLE.validate({"account": 1, "day": "2026-01-31", "run": 1})


def test_defaults_are_left_to_the_function() -> None:
    assert SETTLE.validate({"account": 1, "day": "2026-01-31"}) == {"account": 1, "day": "2026-01-31"}


def test_the_run_is_recognized_by_its_name_or_its_type() -> None:
    def by_name(run): ...
    def by_type(r: Run, x=1): ...
    def second(x, run): ...
    def something_else(run: bool): ...
    def by_keyword(*, run): ...

    names = [Signature.of(each).run_name for each in (by_name, by_type, second, something_else, by_keyword)]
    assert names == ["run", "r", None, None, "run"]


def test_annotations_that_are_texts_are_resolved_one_by_one() -> None:
    signature = Signature.of(signatures_with_text.settle)
    assert signature.run_name == "execution"
    assert signature.validate({"day": date(2026, 1, 31), "other": [1]}) == {"day": "2026-01-31", "other": [1]}
    with pytest.raises(InvalidParameters, match="'days' must be a whole number"):
        signature.validate({"day": "2026-01-31", "days": "x"})


@pytest.mark.parametrize(
    "function",
    [
        signatures_with_text.Shop().close,
        signatures_with_text.Shop(),
        functools.partial(signatures_with_text.Shop.close, None),
    ],
    ids=["method", "object", "partial"],
)
def test_methods_objects_and_partials_can_be_jobs(function: Any) -> None:
    with pytest.raises(InvalidParameters, match="must be a date"):
        Signature.of(function).validate({"day": "soon"})


def test_further_parameters_are_taken_where_the_function_takes_them() -> None:
    def function(run, a: int, *args, **more): ...

    signature = Signature.of(function)
    assert signature.validate({"a": 1, "b": [2]}) == {"a": 1, "b": [2]}
    with pytest.raises(InvalidParameters, match="'b' cannot be stored as JSON"):
        signature.validate({"a": 1, "b": object()})
    with pytest.raises(InvalidParameters, match="no parameter 'run'"):
        signature.validate({"a": 1, "run": 2})


def test_asynchronous_functions_are_told_apart() -> None:
    async def job(): ...

    class Callable:
        async def __call__(self): ...

    assert Signature.of(job).is_async
    assert Signature.of(functools.partial(job)).is_async
    assert Signature.of(Callable()).is_async
    assert not SETTLE.is_async


def test_what_cannot_be_a_job_is_refused_in_a_sentence() -> None:
    def positional(a, /): ...

    def generator():
        yield 1

    async def async_generator():
        yield 1

    with pytest.raises(InvalidJob, match="passed by name, and 'a' is positional-only"):
        Signature.of(positional)
    for each in (generator, async_generator):
        with pytest.raises(InvalidJob, match="it is a generator"):
            Signature.of(each)
    with pytest.raises(InvalidJob, match="not a function"):
        Signature.of(3)  # type: ignore[arg-type]


def test_with_nothing_to_do_binding_does_nothing() -> None:
    def plain(a: int = 1): ...
    def wants_run(run): ...

    params: dict[str, Any] = {}
    assert Signature.of(plain).bind(params, "the run") is params
    assert Signature.of(wants_run).bind(params, "the run") == {"run": "the run"}
    assert params == {}


def test_binding_changes_no_recorded_parameters() -> None:
    stored = {"account": 1, "day": "2026-01-31"}
    bound = SETTLE.bind(stored, "the run")
    assert bound == {"run": "the run", "account": 1, "day": date(2026, 1, 31)}
    assert stored == {"account": 1, "day": "2026-01-31"}


@pytest.mark.parametrize("annotation", [date, Colour, list[date], dict[str, date], Decimal, UUID, date | None, Size])
@given(value=JSON)
def test_what_was_recorded_for_another_release_fails_as_a_misfit_if_at_all(annotation: object, value: object) -> None:
    try:
        taking(annotation).bind({"x": value})
    except InvalidParameters as error:
        assert "parameter 'x' was recorded" in str(error)  # noqa: PT017 - the kind of the error is the claim


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [1, object()]}, r"parameter 'x'\['a'\]\[1\] cannot be stored as JSON"),
        (date(2026, 1, 1), "annotate the parameter with its type"),
        ({1: 2}, "its key 1 is not text"),
        (float("inf"), "cannot be stored as JSON: inf"),
        (b"x", "cannot be stored as JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(value: object, says: str) -> None:
    with pytest.raises(InvalidParameters, match=says):
        taking(Any).validate({"x": value})


def test_endless_nesting_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidParameters, match=f"more than {DEEPEST} deep"):
        taking(Any).validate({"x": endless})


def test_too_much_is_refused() -> None:
    with pytest.raises(InvalidParameters, match="job 'j': the parameters take 60010 bytes"):
        taking(str).validate({"x": "a" * 60_002}, job="j")


@pytest.mark.parametrize(("letter", "size"), [("가", 3), ("é", 2), ("🔒", 4), ("a", 1), ("\ud800", 3)])
def test_letters_of_every_script_count_as_the_bytes_they_are(letter: str, size: int) -> None:
    most = (60_000 - len('{"x":""}')) // size
    assert taking(str).validate({"x": letter * most})
    with pytest.raises(InvalidParameters, match="the limit is 60000"):
        taking(str).validate({"x": letter * (most + 1)})


def test_members_of_json_like_types_become_plain() -> None:
    stored = json_value({"a": Colour.RED, "b": (enum.IntEnum("E", "A").A,)}, "x")
    assert stored == {"a": "red", "b": [1]}
    assert type(stored["a"]) is str  # type: ignore[index,call-overload]


def test_no_password_reaches_a_message() -> None:
    with pytest.raises(InvalidParameters) as error:
        taking(int).validate({"x": "postgresql://app:s3cret@db/x"})
    assert "s3cret" not in str(error.value)


def test_annotations_look_through_aliases_and_what_leaves_it_open_is_not_checked() -> None:
    assert kind_of(Account) is kind_of(int)
    assert taking(Annotated[int, "days"]).validate({"x": 1}) == {"x": 1}
    for open_ in ("Unknown", Any, object, list["Unknown"]):  # noqa: F821
        assert kind_of(open_) in (ANYTHING, kind_of(list))


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


@dataclass
class Order:
    number: int


class Row(TypedDict):
    number: int


UNSUPPORTED = [
    (bytes, "bytes"),
    (timedelta, "timedelta"),
    (tuple, "tuple"),
    (tuple[int, str], r"tuple\[int, str\]"),
    (set[int], r"set\[int\]"),
    (Order, "Order"),
    (Row, "Row"),
    (list[Order], "Order"),
    (int | bytes, "bytes"),
    (Literal[b"x"], "Literal"),
    (dict[int, int], r"dict\[int, int\]"),
    (list[int, int], "list"),  # type: ignore[misc]
    (Unhashable(), "Unhashable"),
]


@pytest.mark.parametrize(("annotation", "spelled"), UNSUPPORTED, ids=[str(each) for _, each in UNSUPPORTED])
def test_what_could_not_be_made_again_is_refused_when_the_job_is_declared(annotation: object, spelled: str) -> None:
    with pytest.raises(
        InvalidJob, match=rf"parameter 'x' is annotated as .*{spelled}.*supported are int, float"
    ) as told:
        taking(annotation)
    assert "<class" not in str(told.value)


def test_a_run_of_any_type_is_still_the_run() -> None:
    def settle(run: Order, day: date): ...

    assert Signature.of(settle).run_name == "run"


@pytest.mark.parametrize("text", ["", "3", "[]", '{"parameters": [{}]}', '{"parameters": 3}'])
def test_a_broken_stored_signature_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InvalidParameters, match="stored signature cannot be read"):
        Signature.from_json(text)


def test_a_newer_release_may_know_more_kinds() -> None:
    text = (
        '{"parameters":[{"name":"x","kind":{"shape":1},"required":true,"new":1},{"name":"y","kind":"colour"}],"new":1}'
    )
    assert Signature.from_json(text).validate({"x": [1], "y": "z"}) == {"x": [1], "y": "z"}
