"""Log records are captured where they are made, whatever else happens there."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fencepost.engine.logs.records import RecordCapture

_log = logging.getLogger("tests.records")


@pytest.fixture
def kept() -> Iterator[list[str]]:
    """A capture that logs while it keeps a record, as an object does that Python collects just then."""
    texts: list[str] = []
    is_busy = False

    def keep(text: str) -> None:
        nonlocal is_busy
        assert not is_busy, "a thread that holds the lock would wait for itself"
        is_busy = True
        if "collected" not in text:
            _log.warning("collected")
        texts.append(text.partition(": tests.records: ")[2])
        is_busy = False

    capture = RecordCapture(lambda _: True, keep)
    capture.start()
    yield texts
    capture.stop()


def test_a_record_made_while_another_is_kept_follows_it(kept: list[str]) -> None:
    _log.warning("first")
    _log.warning("second")
    assert kept == ["first", "collected", "second", "collected"]


def test_a_record_that_cannot_be_formatted_ends_nothing(kept: list[str]) -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError

    logging.getLogRecordFactory()("tests.records", logging.WARNING, "", 0, "%s", (Broken(),), None)
    _log.warning("next")
    assert kept == ["next", "collected"]
