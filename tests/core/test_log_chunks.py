"""What is shown of a log: how many lines are missing, and no control sequence."""

import pytest

from fencepost.core.log_chunks import FIRST_OF_TAIL, LogChunk, Position, plain, with_missing


def chunk(seq: int, lines: int, dropped: int = 0, attempt: int = 1) -> LogChunk:
    return LogChunk(1, attempt, seq, 0, lines, 1, dropped, b"")


def test_missing_lines_are_counted_between_chunks_also_by_a_reader_that_comes_back() -> None:
    tail = FIRST_OF_TAIL
    rows = [chunk(0, 10), chunk(1, 5), chunk(tail + 3, 7, dropped=100), chunk(tail + 4, 1, dropped=107)]
    rows += [chunk(tail + 6, 2, dropped=120), chunk(0, 1, attempt=2), chunk(tail, 1, dropped=4, attempt=2)]
    missing = [0, 0, 100, 0, 12, 0, 4]
    assert [each[1] for each in with_missing(rows, Position())] == missing
    for first in range(len(rows)):
        *_, (_, _, after) = with_missing(rows[: first + 1], Position())
        again = Position.parse(str(after))
        assert [each[1] for each in with_missing(rows[first + 1 :], again)] == missing[first + 1 :]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m\n", "red\n"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;https://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("line\r\nnext\r\n", "line\nnext\n"),
        ("a\x07b\x00c\x9b31md\x7f\u202e", "abcd"),
        ("tab\tand ümlaut 漢\n", "tab\tand ümlaut 漢\n"),
        ("\x1b", ""),
    ],
)
def test_plain_text_has_no_control_sequences(written: str, shown: str) -> None:
    assert plain(written) == shown
