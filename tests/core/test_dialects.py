"""Where other readers of cron expressions disagree with us, somebody who brings one along is warned."""

from datetime import UTC, datetime

import pytest

from fencepost import cron
from fencepost.core.schedules.dialects import disagreements


@pytest.mark.parametrize(
    "expression",
    ["*/5 * * * *", "0 3 * * MON-FRI", "0 0 1 * *", "0 0 */2 * *", "0 0 */1 * MON", "@daily", "5 4 * * SUN"],
)
def test_most_expressions_mean_the_same_everywhere(expression: str) -> None:
    assert disagreements(expression) == ()


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (
            "0 0 */2 * MON",
            "must match both, since one of them begins with a star; in croniter and in Kubernetes either",
        ),
        ("0 0 1 * */2", "must match both, since"),
        ("0 0 13 * FRI", "matches either is due; in Celery it must match both"),
        ("0 0 3 * * *", "here the second is first"),
        ("0 3 L * *", "not supported by Kubernetes"),
        ("0 3 * * FRI#2", "not supported by Kubernetes"),
        ("0 3 * * 5L", "not supported by Kubernetes"),
        ("0 3 * * 5-7", "refused by Kubernetes"),
    ],
)
def test_each_disagreement_is_named(expression: str, words: str) -> None:
    [sentence] = disagreements(expression)
    assert words in sentence


def test_a_day_field_with_a_star_and_a_step_means_both_as_it_says() -> None:
    due_us = cron("0 0 */2 * MON").due_after(int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000)
    due = datetime.fromtimestamp(due_us / 1_000_000, UTC)
    assert (due.day % 2, due.strftime("%a")) == (1, "Mon")
