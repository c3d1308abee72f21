"""What *why* says of the past is what happened: every due time of a story is asked for, and the oracle knows each."""

import pytest

from tests.why.asking import played


@pytest.mark.timeout(300)  # a thousand statements, on a machine that may be busy
@pytest.mark.parametrize("kind", ["sqlite"])
def test_why_of_each_past_due_time_is_what_the_oracle_says(ledger_url: str) -> None:
    asked = played(ledger_url, seed=0, lanes=6)
    assert asked.wrong == []
    assert asked.past >= 200
    assert {"ran", "failed", "cancelled", "skipped", "misfired", "paused", "no node", "forgotten"} <= set(asked.words)
