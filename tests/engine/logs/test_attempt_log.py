"""Of each attempt the first 64 kB and the last 192 kB are kept, without secrets, and what is missing is counted."""

import random
import zlib

import pytest

from fencepost.core.log_chunks import LogChunk, Position, with_missing
from fencepost.engine.logs.attempt_log import CHUNK_BYTES, HEAD_BYTES, TAIL_BYTES, AttemptLog

KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 60 + "-----END PRIVATE KEY-----\n"


class Kept:
    """A ledger that has the chunks of one attempt."""

    def __init__(self) -> None:
        self.log = AttemptLog(1, 1)
        self.rows: dict[int, LogChunk] = {}

    def flush(self) -> None:
        self.log.unsent = self.log.unsent or self.log.chunks(self.log.take())
        self.rows |= {chunk.seq: chunk for chunk in self.log.unsent}
        removed = self.log.sent()
        if removed is not None:
            self.rows = {seq: row for seq, row in self.rows.items() if not removed[0] <= seq <= removed[1]}

    def end(self) -> None:
        self.log.end(0)
        self.flush()

    @property
    def ordered(self) -> list[LogChunk]:
        return [self.rows[seq] for seq in sorted(self.rows)]

    @property
    def text(self) -> str:
        return b"".join(zlib.decompress(row.text) for row in self.ordered).decode()

    @property
    def missing(self) -> int:
        return sum(each[1] for each in with_missing(self.ordered, Position()))


@pytest.mark.parametrize("every", [1, 37, 5000, 10**9], ids=["each-line", "often", "seldom", "only-at-the-end"])
def test_both_ends_are_kept_and_the_lines_between_them_are_counted(every: int) -> None:
    kept, count = Kept(), 60_000
    lines = [b"line %d\n" % number for number in range(count)]
    for number in range(0, count, 7):
        kept.log.add(1, b"".join(lines[number : number + 7]), 0)
        if number % every < 7 and (every > 1 or number % 700 == 0):
            kept.flush()
    kept.end()
    shown = kept.text.splitlines()
    assert shown[0] == "line 0"
    assert shown[-1] == f"line {count - 1}"
    assert len(shown) + kept.missing == count
    numbers = [int(each.split()[1]) for each in shown]
    assert numbers == sorted(set(numbers))
    beginning = next(index for index, number in enumerate(numbers) if index != number)
    assert HEAD_BYTES - 20 <= sum(len(line) for line in lines[:beginning]) <= HEAD_BYTES + CHUNK_BYTES
    gap = max(index for index in range(1, len(numbers)) if numbers[index] != numbers[index - 1] + 1)
    assert TAIL_BYTES - 20 <= sum(len(lines[number]) for number in numbers[gap:]) <= TAIL_BYTES + CHUNK_BYTES
    assert all(row.size <= CHUNK_BYTES for row in kept.ordered)


def test_a_line_of_ten_megabytes_is_kept_in_part_and_takes_little_memory() -> None:
    kept = Kept()
    for _ in range(160):
        kept.log.add(1, b"x" * 65536, 0)
        assert kept.log.pending <= HEAD_BYTES + 2 * TAIL_BYTES
    kept.log.add(1, b" the end", 0)
    kept.end()
    assert kept.text.endswith("x the end\n")
    assert HEAD_BYTES + TAIL_BYTES - 70_000 < len(kept.text) < HEAD_BYTES + TAIL_BYTES + 70_000
    assert kept.missing > 100


def test_bytes_that_are_not_text_are_spelled_out_and_characters_stay_whole() -> None:
    kept = Kept()
    word = "漢字ü".encode()
    for byte in b"\xff\xfe " + word + b"\nnot ended":
        kept.log.add(2, bytes([byte]), 0)
        kept.flush()
    assert kept.text == "\\xff\\xfe 漢字ü\n"
    kept.end()
    assert kept.text.endswith("\nnot ended\n")


def test_streams_do_not_mix_within_a_line() -> None:
    kept = Kept()
    kept.log.add(1, b"from out", 0)
    kept.log.add(2, b"from err\n", 0)
    kept.log.add(1, b"put\n", 0)
    kept.end()
    assert kept.text == "from err\nfrom output\n"


SECRETS = [
    "password=hunter2",
    "redis://app:hunter2@cache:6379/0",
    '{"password": "hunter2 hunter2"}',
    "api_key =\n  'hunter2'",
    "Authorization: Bearer hunter2hunter2hunter2",
    'password="hunter2\nhunter2"',
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_masked_wherever_reads_and_chunks_are_cut(secret: str) -> None:
    written = f"first line\n{secret}\nlast line\n".encode()
    chance = random.Random(secret)
    ways = [[cut] for cut in range(len(written))] + [sorted(chance.sample(range(len(written)), 3)) for _ in range(20)]
    for cuts in ways:
        kept = Kept()
        for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
            kept.log.add(1, written[start:end], 0)
            kept.flush()
        kept.end()
        assert "hunter2" not in kept.text, cuts
        assert kept.text.startswith("first line\n")
        assert kept.text.endswith("last line\n")


@pytest.mark.parametrize("lines_at_once", [1, 7, 1000])
def test_a_private_key_is_masked_also_if_it_comes_line_by_line(lines_at_once: int) -> None:
    kept, lines = Kept(), KEY.splitlines(keepends=True)
    for start in range(0, len(lines), lines_at_once):
        kept.log.add(1, "".join(lines[start : start + lines_at_once]).encode(), 0)
        kept.flush()
    kept.log.add(1, b"after\n", 0)
    kept.end()
    assert "MIIE" not in kept.text
    assert kept.text.endswith("after\n")


def test_lines_that_a_mask_took_the_place_of_are_not_missing() -> None:
    kept = Kept()
    kept.log.add(1, b"x\n" * HEAD_BYTES, 0)
    kept.flush()
    kept.log.add(1, KEY.encode() + b"after\n", 0)
    kept.end()
    assert kept.missing == 0


def test_a_long_line_is_not_cut_in_a_secret() -> None:
    for place in range(65536 - 60, 65536 + 20, 3):
        kept = Kept()
        kept.log.add(1, b"x" * place + b" redis://app:hunter2hunter2hunter2@cache/0 ghp_" + b"hunter2" * 5, 0)
        kept.log.add(1, b" " + b"y" * 70_000 + b"\n", 0)
        kept.end()
        assert "unter2h" not in kept.text, place


def test_what_the_ledger_did_not_take_is_written_next_time_and_nothing_twice() -> None:
    kept = Kept()
    kept.log.add(1, b"one\n", 0)
    kept.log.unsent = kept.log.chunks(kept.log.take())  # the ledger is away
    first = list(kept.log.unsent)
    kept.log.add(1, b"two\n", 0)
    assert kept.log.take() == []
    kept.flush()
    assert list(kept.rows.values()) == first
    kept.end()
    assert kept.text == "one\ntwo\n"


def test_what_is_given_up_is_counted() -> None:
    kept = Kept()
    kept.log.add(1, b"one\ntwo\n", 0)
    kept.flush()
    kept.log.add(1, b"three\nfour\nfive\n", 0)
    kept.log.end(0)
    assert kept.log.give_up(0) == 3
    kept.flush()
    assert (kept.text, kept.missing) == ("one\ntwo\n", 3)
