"""What workers write is kept by run, whichever way it is read: at once, in pieces, from one pipe or both."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from fencepost.core import masked_values
from fencepost.core.log_chunks import LogChunk, Position, with_missing
from fencepost.core.masked_values import MASKED, MaskedValues
from fencepost.core.output_frames import begin_frame, end_frame, log_frames, mark_of, secret_frames
from fencepost.engine.logs import brief_logs, run_logs
from fencepost.engine.logs.attempt_log import packed
from fencepost.engine.logs.run_logs import RunLogs
from fencepost.threaded import ThreadedRuntime

SECRET = "ab" * 12
MARK = mark_of(SECRET)
WORKER = 1


class Reading:
    """Logs that read one worker, and the rows that a ledger would have."""

    def __init__(self) -> None:
        self.logs = RunLogs(ThreadedRuntime())
        self.logs.began(WORKER, SECRET)
        self.rows: dict[tuple[int, int, int], LogChunk] = {}
        self.passed_on = b""

    def run(self, run_id: int, text: bytes = b"", errors: bytes = b"") -> None:
        """Read all that a run writes."""
        for stream, written in ((1, text), (2, errors)):
            self.read(stream, framed(run_id, written))

    def read(self, stream: int, chunk: bytes) -> None:
        self.passed_on += self.logs.written(WORKER, stream, chunk)

    def flush(self) -> None:
        """Be the ledger."""
        while chunks := self.logs.take(1 << 30):
            for chunk in chunks:
                self.rows.setdefault(chunk[:3], chunk)
            self.logs.taken(chunks)

    def chunks(self, run_id: int) -> list[LogChunk]:
        self.flush()
        return [self.rows[key] for key in sorted(self.rows) if key[0] == run_id]

    def text(self, run_id: int) -> bytes:
        return b"".join(zlib.decompress(each.text) for each in self.chunks(run_id))


@pytest.fixture
def reading() -> Reading:
    return Reading()


@pytest.fixture
def masked() -> Iterator[MaskedValues]:
    """What is masked in this process, without what a test adds."""
    before = MASKED.__dict__.copy()
    MASKED.__dict__.update(MaskedValues().__dict__)
    yield MASKED
    MASKED.__dict__.update(before)


def framed(run_id: int, text: bytes) -> bytes:
    return begin_frame(MARK, run_id, 1) + text + end_frame(MARK)


@pytest.mark.parametrize("knows_values", [False, True])
@pytest.mark.parametrize("largest", [20, 300, 20_000])
def test_each_run_has_its_own_lines_wherever_the_reads_are_cut(
    largest: int, masked: MaskedValues, *, knows_values: bool
) -> None:
    chance = random.Random(largest)
    if knows_values:
        masked.add("value that no run writes")
    for _ in range(60):
        reading, pipes, wrote = Reading(), {1: b"", 2: b""}, {}
        for run_id in range(1, 31):
            text = b"".join(chance.choices([b"", b"run %d\n" % run_id, b"no end", b"long " * 150], k=2))
            errors = chance.choice([b"", b"", b"", b"errors of %d\n" % run_id])
            record = b"".join(log_frames(MARK, b"a record\n")) if chance.random() < 0.1 else b""
            pipes[1] += framed(run_id, text)
            pipes[2] += framed(run_id, record + errors)
            wrote[run_id] = sorted(line for part in (text, errors, b"a record" * bool(record)) for line in part.split())
        while any(pipes.values()):
            for stream in (1, 2):
                size = chance.randint(0, largest)
                reading.read(stream, pipes[stream][:size])
                pipes[stream] = pipes[stream][size:]
            if chance.random() < 0.3:
                reading.flush()
        assert {run_id: sorted(reading.text(run_id).split()) for run_id in wrote} == wrote
        assert reading.logs.waiting == 0
        assert not reading.logs.has_begun
        assert b"\x00" not in reading.passed_on


def test_a_brief_log_is_one_complete_line_even_if_the_job_did_not_end_it(reading: Reading) -> None:
    reading.run(7, b"no end")
    [chunk] = reading.chunks(7)
    assert (chunk.attempt, chunk.seq, chunk.lines, chunk.size, chunk.dropped) == (1, 0, 1, 7, 0)
    assert reading.text(7) == b"no end\n"


def test_secrets_are_masked_in_one_brief_log_among_many(reading: Reading, masked: MaskedValues) -> None:
    masked.add("looked-up-value")
    said = {5: b"password=s3cret and more\n", 70: b"a \xff and token=abc-def\n", 71: b"it is looked-up-value\n"}
    for run_id in range(1, 201):
        reading.run(run_id, said.get(run_id, b"'an open quote of %d\n" % run_id))
    assert reading.text(5) == b"password=*** and more\n"
    assert reading.text(70) == b"a \\xff and token=***\n"
    assert reading.text(71) == b"it is ***\n"
    assert all(reading.text(run_id) == b"'an open quote of %d\n" % run_id for run_id in (1, 4, 6, 69, 72, 200))


def test_a_value_that_becomes_secret_is_masked_in_what_already_waits(reading: Reading, masked: MaskedValues) -> None:
    reading.run(1, b"it is looked-up-value\n")
    masked.add("looked-up-value")
    assert reading.text(1) == b"it is ***\n"


def test_a_value_is_masked_as_long_as_its_worker_may_write_it(
    reading: Reading, masked: MaskedValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_values, "_MOST", 3)
    monkeypatch.setattr(masked_values, "_AT_ONCE", 0)
    vars(masked).update(vars(MaskedValues()))
    told = b"".join(secret_frames(MARK, b"static-value-of-the-vault"))
    for stream in (1, 2):
        reading.read(stream, begin_frame(MARK, 1, 1) + told + b"%d\n" % stream + end_frame(MARK))
    reading.logs.began(WORKER + 1, SECRET)
    for number in range(150):  # another worker leases a value for each of its runs
        leased = b"leased for run %d" % number
        run = begin_frame(MARK, number, 1) + b"".join(secret_frames(MARK, leased)) + leased + end_frame(MARK)
        assert [reading.logs.written(WORKER + 1, stream, run) for stream in (1, 2)] == [b"***"] * 2
    reading.run(777, b"is static-value-of-the-vault\n")
    assert reading.text(777) == b"is ***\n"


def test_value_that_is_written_in_pieces_around_the_end_of_a_worker_is_masked(
    reading: Reading, masked: MaskedValues
) -> None:
    for stream in (1, 2):
        reading.read(stream, begin_frame(MARK, 7, 1) + b"".join(secret_frames(MARK, b"looked-up-value")))
    reading.read(1, b"the first half is looked-")
    passed = reading.logs.ended(WORKER)
    reading.read(1, b"up-value\nleft behind: looked")
    reading.read(1, b"-up-value\nlook")
    assert (passed, reading.logs.closed(WORKER)) == ({1: b"", 2: b""}, {1: b"look", 2: b""})
    assert reading.passed_on == b"the first half is ***\nleft behind: ***\n"
    assert reading.text(7) == b"the first half is looked-\n"
    assert reading.logs._sources == {}


def test_what_waits_at_the_end_of_a_worker_is_in_its_log_and_is_passed_on(
    reading: Reading, masked: MaskedValues
) -> None:
    masked.add("looked-up-value")
    for stream in (1, 2):
        reading.read(stream, begin_frame(MARK, 7, 1) + b"half a look" + MARK[:3])
    ended, closed = reading.logs.ended(WORKER), reading.logs.closed(WORKER)
    assert reading.passed_on == b"half a " * 2
    assert [ended[stream] + closed[stream] for stream in (1, 2)] == [b"look" + MARK[:3]] * 2
    assert reading.text(7).count(b"half a look") == 2


def test_frames_of_what_a_worker_left_behind_are_neither_kept_nor_passed_on(reading: Reading) -> None:
    reading.logs.ended(WORKER)
    reading.read(1, begin_frame(MARK, 7, 1) + b"left behind\n")
    reading.read(2, b"".join(log_frames(MARK, b"a record\n")))
    assert (reading.passed_on, reading.logs.waiting, reading.logs.has_begun) == (b"left behind\n", 0, False)


def test_what_is_written_between_runs_belongs_to_none_even_if_a_secret_may_begin_there(
    reading: Reading, masked: MaskedValues
) -> None:
    masked.add("looked-up-value")
    reading.read(1, framed(1, b"one\n") + b"left behind: look" + framed(2, b"two\n"))
    reading.read(2, framed(1, b"") + framed(2, b""))
    assert reading.text(2) == b"two\n"
    assert reading.passed_on == b"one\nleft behind: looktwo\n"


def test_brief_logs_are_handed_out_again_until_the_ledger_has_them(reading: Reading) -> None:
    reading.run(1, b"one\n")
    first = reading.logs.take(1 << 20)
    reading.run(2, b"two\n")
    assert reading.logs.take(1 << 20) == first
    assert [chunk.run_id for chunk in first] == [1]
    reading.logs.taken(first)
    assert reading.logs.waiting == len(b"two\n")
    assert [chunk.run_id for chunk in reading.logs.take(1 << 20)] == [2]


def test_no_more_brief_logs_are_handed_out_than_asked_for(reading: Reading) -> None:
    for run_id in range(1, 101):
        reading.run(run_id, b"x" * 99 + b"\n")
    assert reading.logs.take(0) == []
    chunks = reading.logs.take(1000)
    assert [chunk.run_id for chunk in chunks] == list(range(1, 11))
    reading.logs.taken(chunks)
    assert reading.logs.take(0) == []


@pytest.mark.parametrize("most_chunks", [20_000, 100])
def test_brief_logs_leave_room_to_runs_that_write_more(
    most_chunks: int, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "_MOST_CHUNKS", most_chunks)
    reading.read(1, begin_frame(MARK, 1, 1) + b"a line\n")
    reading.read(1, b"more\n" + end_frame(MARK) + begin_frame(MARK, 2, 1) + b"goes on\n")
    reading.read(2, framed(1, b"") + begin_frame(MARK, 2, 1))
    reading.logs.began(WORKER + 1, SECRET)
    for stream, text in ((1, b"x" * 99 + b"\n"), (2, b"")):
        reading.logs.written(WORKER + 1, stream, b"".join(framed(run_id, text) for run_id in range(3, 303)))
    first = reading.logs.take(10_000)
    assert {1, 2, 3} <= {chunk.run_id for chunk in first}
    reading.logs.taken(first)
    assert len(reading.logs.take(10_000)) == min(100, most_chunks - 40)  # all of them brief


def test_runs_under_way_are_written_beside_very_many_that_end(reading: Reading) -> None:
    """Each of these writes a little more than is brief, and all of them more than there is room for."""
    reading.logs.began(WORKER + 1, SECRET)
    for stream in (1, 2):
        reading.read(stream, begin_frame(MARK, 1, 1))
    for second in range(3):
        reading.read(1, b"in second %d\n" % second)
        for number in range(100):
            for stream, text in ((1, b"x" * 599 + b"\n"), (2, b"")):
                run = framed(100 * second + number + 10, text)
                reading.logs.written(WORKER + 1, stream, run)
        chunks = reading.logs.take(20_000)
        assert 20_000 <= sum(chunk.size for chunk in chunks) < 21_000
        assert [zlib.decompress(chunk.text) for chunk in chunks if chunk.run_id == 1] == [b"in second %d\n" % second]
        reading.logs.taken(chunks)


def test_floods_of_runs_under_way_leave_room_to_those_that_have_ended(reading: Reading) -> None:
    for worker in range(2, 5):
        reading.logs.began(worker, SECRET)
        for stream in (1, 2):
            reading.logs.written(worker, stream, begin_frame(MARK, worker, 1))
        reading.logs.written(worker, 1, (b"x" * 99 + b"\n") * 3000)
    reading.run(1, b"y" * 999 + b"\n")
    assert {chunk.run_id for chunk in reading.logs.take(500_000)} == {1, 2, 3}


def test_runs_under_way_take_turns_and_leave_room_to_those_that_have_ended(reading: Reading) -> None:
    for worker in range(2, 12):
        reading.logs.began(worker, SECRET)
        for stream in (1, 2):
            reading.logs.written(worker, stream, begin_frame(MARK, worker, 1))
    reading.run(1, b"x" * 999 + b"\n")
    written = list[set[int]]()
    for _ in range(5):
        for worker in range(2, 12):
            reading.logs.written(worker, 1, b"x" * 999 + b"\n")
        chunks = reading.logs.take(5000)
        written.append({chunk.run_id for chunk in chunks})
        reading.logs.taken(chunks)
    assert 1 in written[0]
    assert set.union(*written) == set(range(1, 12))


def test_what_waits_of_brief_logs_is_bounded_and_what_is_dropped_is_counted(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "_MOST_WAITING", 10_000)
    for run_id in range(1, 1001):
        reading.run(run_id, b"x" * 99 + b"\n")
        assert reading.logs.waiting - len(reading.logs._given_up) <= 10_000
    kept = [reading.text(run_id).count(b"\n") for run_id in range(1, 1001)]
    missing = [sum(each[1] for each in with_missing(reading.chunks(run_id), Position())) for run_id in range(1, 1001)]
    assert [*map(sum, zip(kept, missing, strict=True))] == [1] * 1000
    assert 0 < reading.logs.dropped == sum(missing) < 1000
    assert kept == sorted(kept)  # the first were given up
    assert sum(kept) > 90


def test_lines_that_the_ledger_has_are_not_counted_as_dropped_when_the_rest_is_given_up(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (1, 2):
        reading.read(stream, begin_frame(MARK, 1, 1))
    reading.read(1, b"".join(b"line %d\n" % number for number in range(20_000)))
    stored = reading.text(1).count(b"\n")
    reading.read(1, b"new\nnew\nno end")
    monkeypatch.setattr(run_logs, "_MOST_ENDED", 0)
    for stream in (1, 2):
        reading.read(stream, end_frame(MARK))
    assert reading.logs.dropped == 3
    assert stored + sum(each[1] for each in with_missing(reading.chunks(1), Position())) == 20_003


@pytest.mark.parametrize(("most", "text"), [("_MOST_BRIEF", b"x\n"), ("_MOST_ENDED", b"x" * 600 + b"\n")])
def test_no_more_logs_wait_than_a_node_has_room_for_and_no_more_than_needed_are_given_up(
    monkeypatch: pytest.MonkeyPatch, most: str, text: bytes
) -> None:
    monkeypatch.setattr(run_logs, most, 100)
    monkeypatch.setattr(run_logs, "_MOST_GIVEN_UP", 200)
    reading = Reading()
    for run_id in range(1, 1001):
        reading.run(run_id, text)
        assert len(reading.logs._briefs) + len(reading.logs._ended) <= 100
        assert len(reading.logs._given_up) <= 200
    logs = [(reading.text(run_id), reading.chunks(run_id)) for run_id in range(1, 1001)]
    kept = sum(bool(written) for written, _ in logs)
    assert 94 <= kept <= 100
    given_up, marked, latest = logs[: 800 - kept], logs[800 - kept : 1000 - kept], logs[1000 - kept :]
    assert given_up == [(b"", [])] * len(given_up)
    assert [sum(each[1] for each in with_missing(chunks, Position())) for _, chunks in marked] == [1] * 200
    assert [written for written, _ in latest] == [text] * kept
    assert reading.logs.dropped == 1000 - kept
    assert reading.logs.waiting == 0


def test_what_runs_under_way_wrote_does_not_cost_others_their_logs(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "_MOST_WAITING", 10_000)
    for stream in (1, 2):
        reading.read(stream, begin_frame(MARK, 1, 1))
    reading.read(1, b"x" * 99 + b"\n" + b"y\n" * 10_000)
    reading.logs.began(WORKER + 1, SECRET)
    for stream, text, longer in ((1, b"a line\n", b"z" * 600), (2, b"", b"")):
        reading.logs.written(WORKER + 1, stream, framed(2, text) + framed(3, longer))
    assert reading.text(2) == b"a line\n"
    assert reading.text(3) == b"z" * 600 + b"\n"
    assert reading.logs.dropped == 0


def test_a_job_that_writes_frames_of_its_own_fills_no_memory(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_logs, "_MOST_ENDED", 100)
    reading.read(1, framed(7, b"a line\n") * 50)
    for run_id in range(1000):
        reading.read(1, framed(run_id, b"a line\n"))
    assert len(reading.logs._sources[WORKER].briefs) <= 101
    reading.run(7, b"a line\n")
    reading.run(7, b"again\n")
    reading.logs.ended(WORKER)
    reading.flush()
    assert reading.logs.waiting == 0
    assert not reading.logs.has_begun


def test_texts_of_all_sizes_can_be_unpacked() -> None:
    chance = random.Random(1)
    assert all(zlib.decompress(packed(text)) == text for size in range(600) for text in [chance.randbytes(size)])


def test_brief_logs_are_looked_at_together(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(brief_logs, "has_no_secret", lambda text: looked.append(text) or True)
    for run_id in range(1, 129):
        reading.run(run_id, b"a line\n")
    reading.flush()
    assert [text.count("\n") for text in looked] == [64, 64]


def test_an_attempt_that_ends_while_its_turn_is_passed_on_has_ended() -> None:
    """The thread that notes what the ledger has takes the attempt out for a moment, to put it behind the others."""
    logs = RunLogs(ThreadedRuntime())
    was_taken_out, may_go_on = Event(), Event()

    class Waiting(dict[Any, Any]):
        def pop(self, *key: Any) -> Any:
            value = super().pop(*key)
            was_taken_out.set()
            assert may_go_on.wait(30)
            return value

    logs.begin(1, 1)
    logs.log(1, 1, "first")
    logs._attempts = Waiting(logs._attempts)
    chunks = logs.take(1 << 20)
    writer, job = Thread(target=logs.taken, args=(chunks,)), Thread(target=logs.over, args=(1, 1))
    writer.start()
    assert was_taken_out.wait(30)
    job.start()
    job.join(0.2)  # it waits, or has returned by now
    may_go_on.set()
    writer.join(30)
    job.join(30)
    logs.taken(logs.take(1 << 20))
    assert not logs.has_begun
