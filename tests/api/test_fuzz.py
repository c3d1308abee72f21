"""Requests made from the description: none fails, and every answer is as described."""

import pytest


@pytest.mark.timeout(300)  # 2,000 requests, on a machine that may be busy
def test_no_request_fails_and_every_answer_is_as_described() -> None:
    from tests.api.fuzzing import fuzz  # here: else each process of pytest loads schemathesis when it collects

    done = fuzz(2000)
    assert done.wrong == []
    assert sum(done.statuses.values()) >= 2000
    assert {200, 404, 422} <= set(done.statuses)
