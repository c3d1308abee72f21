"""A node goes on, and ends, though nobody reads what it logs: a pipe that is full, a terminal stopped with Ctrl-S."""

import fcntl
import io
import logging
import os
import signal
import subprocess
from pathlib import Path

from fencepost.threaded import aside
from fencepost.threaded.aside import AsideHandler
from testbed.wait import until
from tests.cli.command import FENCEPOST, LONG_S
from tests.cli.inside import call

ROOT = Path(__file__).parents[2]
PIPE = 4096


def test_a_node_whose_log_nobody_reads_runs_what_is_asked_for_and_ends_when_told(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    words = [FENCEPOST, "run", "tests.cli.shop:app", "--workers", "2", "-v"]
    settings = {**os.environ, "FENCEPOST_URL": ledger, "FENCEPOST_TTL": "10s"}
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, cwd=ROOT, env=settings)
    try:
        until(lambda: b"takes part" in os.read(reading, PIPE), LONG_S, what="it takes part")
        fill(writing)
        for _ in range(3):
            waited = call("trigger", "guarded", "--wait", "--json", ledger=ledger).json
            assert waited["state"] == "succeeded"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        os.close(writing)


def fill(pipe: int) -> None:
    """Write until it takes nothing more; through a description of our own, so that others still wait at theirs."""
    number = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while os.write(number, b"x" * 512):
            pass
    except BlockingIOError:
        pass
    finally:
        os.close(number)


def _logger(handler: AsideHandler) -> logging.Logger:
    logger = logging.Logger("shop")
    logger.addHandler(handler)
    return logger


def test_what_nobody_had_room_for_is_counted_and_all_else_comes_in_order(monkeypatch) -> None:
    monkeypatch.setattr(aside, "_MOST", 5)
    monkeypatch.setattr(aside, "_FLUSH_S", 0.01)
    reading, writing = os.pipe()
    fill(writing)
    with open(reading, "rb", buffering=0) as reader, open(writing, "w") as writer:
        handler = AsideHandler(writer)
        logger = _logger(handler)
        logger.warning("first")
        until(lambda: handler._is_writing, what="it waits for the pipe")
        for number in range(8):
            logger.warning("record %d", number)
        handler.flush()  # and does not wait for ever
        told = b""

        def read() -> bool:
            nonlocal told
            told += reader.read(65536).replace(b"x", b"")
            return b"dropped" in told

        until(read, what="it says how many it dropped")
    lines = told.decode().splitlines()
    assert lines[:6] == ["first", *(f"record {number}" for number in range(5))]
    assert lines[6] == "3 log records were dropped here, because the output of this process was not read"


def test_a_record_that_cannot_be_formatted_is_told_and_a_stream_without_a_number_is_written_to() -> None:
    stream = io.StringIO()
    handler = AsideHandler(stream)
    _logger(handler).warning("%d of many", "not a number")
    _logger(handler).warning("the next")
    handler.flush()
    first, second = stream.getvalue().splitlines()
    assert first.startswith("a record of shop could not be formatted: '%d of many': TypeError")
    assert second == "the next"


def test_a_forked_child_writes_for_itself_before_it_ends(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        handler = AsideHandler(stream)
        logger = _logger(handler)
        logger.warning("the parent's")
        handler.flush()
        child = os.fork()
        if not child:
            try:
                logger.warning("the child's")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert (tmp_path / "log").read_text().splitlines() == ["the parent's", "the child's"]


def test_whoever_read_may_be_gone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as writer:
        handler = AsideHandler(writer)
        _logger(handler).warning("to nobody")
        handler.flush()
        assert not handler._waiting
