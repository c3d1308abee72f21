"""What a worker writes comes apart into pieces, wherever the reads cut it."""

import random

from fencepost.core.output_frames import (
    LARGEST_FRAME,
    Begin,
    Brief,
    End,
    Logged,
    OutputSplitter,
    Piece,
    begin_frame,
    end_frame,
    log_frames,
    mark_of,
)

MARK = mark_of("5e0c" * 6)


def _pieces(written: bytes, cuts: list[int]) -> list[Piece]:
    """Split what is read in several chunks; outputs that follow each other are joined, and silent runs counted."""
    splitter = OutputSplitter(MARK)
    made: list[Piece] = []
    for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        for piece in splitter.split(written[start:end]):
            if isinstance(piece, bytes) and made and isinstance(made[-1], bytes):
                made[-1] = bytes(made[-1]) + piece
            elif piece != b"":
                made.append(piece)
    rest = splitter.rest()
    return [*made, rest] if rest else made


def test_pieces_are_the_same_wherever_the_reads_are_cut() -> None:
    written = b"".join(
        [
            b"before\n",
            begin_frame(MARK, 7, 1),
            b"hello\x00\xff" + MARK[:9],  # a beginning of the mark that is none
            *log_frames(MARK, b"a record\n"),
            b"world\n",
            end_frame(MARK),
            b"between\n",
            begin_frame(MARK, 2**62, 3),
            b"\x00",
            end_frame(MARK),
            MARK[:3],
        ]
    )
    expected = [
        b"before\n",
        Begin(7, 1),
        b"hello\x00\xff" + MARK[:9],
        Logged(b"a record\n"),
        b"world\n",
        End(),
        b"between\n",
        Begin(2**62, 3),
        b"\x00",
        End(),
        MARK[:3],
    ]
    assert _pieces(written, []) == expected
    assert all(_pieces(written, [cut]) == expected for cut in range(len(written)))
    assert _pieces(written, list(range(len(written)))) == expected
    chance = random.Random(1)
    for _ in range(200):
        assert _pieces(written, sorted(chance.sample(range(len(written)), 5))) == expected


def test_runs_that_write_nothing_are_only_counted() -> None:
    silent = b"".join(begin_frame(MARK, run, 1) + end_frame(MARK) for run in range(500))
    assert OutputSplitter(MARK).split(silent + b"x") == [End(500), b"x"]


def test_runs_that_write_little_come_together_and_one_that_writes_much_by_itself() -> None:
    texts = [b"one\n", b"", b"no end", b"x" * 600, b"last\n"]
    written = b"".join(begin_frame(MARK, run, 2) + text + end_frame(MARK) for run, text in enumerate(texts))
    assert OutputSplitter(MARK).split(written) == [
        Brief([(b"0", b"2", b"one\n"), (b"1", b"2", b""), (b"2", b"2", b"no end")]),
        *(Begin(3, 2), b"x" * 600, End()),
        Brief([(b"4", b"2", b"last\n")]),
    ]


def test_a_job_that_writes_the_mark_itself_is_taken_by_its_word() -> None:
    text = MARK + b"z" * 200
    assert b"".join(each for each in OutputSplitter(MARK).split(text) if isinstance(each, bytes)) == text


def test_no_frame_is_larger_than_what_the_kernel_keeps_together() -> None:
    frames = list(log_frames(MARK, b"x" * 20_000))
    assert max(map(len, frames)) <= LARGEST_FRAME
    pieces = OutputSplitter(MARK).split(b"".join(frames))
    assert b"".join(each.text for each in pieces if isinstance(each, Logged)) == b"x" * 20_000
