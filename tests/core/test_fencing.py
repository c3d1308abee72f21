"""The one rule by which fences judge a writer."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.fencing import AHEAD_US, FencingToken, Mark, refusal

TOKENS = st.integers(1, 6)
GRANTS = st.sampled_from("ab")
DAY_US = 24 * 3600 * 1_000_000


def judged(mark: Mark | None, token: int, grant_id: str = "a", now_us: int | None = None) -> str | None:
    return refusal(mark, FencingToken("k", token, grant_id), now_us=now_us)


def test_the_table_of_the_module_holds() -> None:
    mark = Mark(7, "a", "node-1")
    assert judged(None, 1) is None
    assert judged(mark, 8, "b") is None
    assert judged(mark, 7, "a") is None
    assert judged(mark, 6) == "a newer holder (node-1) has written with token 7"
    assert judged(mark, 7, "b") == "another grant (node-1) has written with the same token"


def test_a_token_may_be_a_day_ahead_and_no_more() -> None:
    assert AHEAD_US == DAY_US
    assert judged(None, 1_000 + DAY_US, now_us=1_000) is None
    said = judged(None, 1_001 + DAY_US, now_us=1_000) or ""
    assert "more than a day ahead" in said
    assert "fencepost locks reset" in said


@given(st.lists(st.tuples(TOKENS, GRANTS)))
def test_whoever_comes_in_whatever_order_tokens_never_fall_and_one_grant_has_each(
    offers: list[tuple[int, str]],
) -> None:
    mark: Mark | None = None
    let_in: list[tuple[int, str]] = []
    for token, grant_id in offers:
        if judged(mark, token, grant_id) is None:
            mark = Mark(token, grant_id)
            let_in.append((token, grant_id))
    tokens = [token for token, _ in let_in]
    assert tokens == sorted(tokens)
    assert len(set(let_in)) == len(set(tokens))
