"""Where the commands write to: pipes that somebody closes, full disks, terminals that are narrow, odd encodings."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from fencepost.cli.output import visible
from fencepost.core.runs import Requested
from fencepost.ledger import requests
from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime
from tests.cli.command import FENCEPOST, fencepost
from tests.cli.inside import call

MANY = 1000  # runs: more than fit into a pipe


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('output')}/ledger.db"
    assert call("migrate", "--ledger", url).returncode == 0
    book = open_ledger(url, ThreadedRuntime())
    requests.enqueue(book, [Requested(job="naïve", type="manual", reason="☃") for _ in range(MANY)])
    book.close()
    return url


@pytest.mark.parametrize("words", [["runs", "--limit", str(MANY)], ["runs", "--json"], ["runs", "--follow"]])
def test_a_reader_that_has_seen_enough_is_no_failure(ledger: str, words: list[str]) -> None:
    process = subprocess.Popen(
        [FENCEPOST, *words, "--ledger", ledger], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline()
        process.stdout.close()
        if "--follow" in words:
            book = open_ledger(ledger, ThreadedRuntime())
            requests.enqueue(book, [Requested(job="naïve", type="manual")])
            book.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no /dev/full")
@pytest.mark.parametrize("words", [["runs"], ["runs", "--json"], ["--help"], ["--version"]])
def test_a_full_disk_is_told_in_a_sentence(ledger: str, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [FENCEPOST, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "FENCEPOST_URL": ledger},
        )
    assert done.returncode == 2
    assert done.stderr == "fencepost: the output cannot be written: No space left on device\n"


def test_nobody_listening_at_all_is_no_failure(ledger: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{FENCEPOST} runs --ledger {ledger} >&-"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_spelled_out(ledger: str, encoding: str) -> None:
    environment = {"PYTHONIOENCODING": encoding}
    shown = fencepost("show", "1", "--ledger", ledger, env=environment, encoding=encoding)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\\u2603" in shown.stdout
    for_programs = fencepost("show", "1", "--json", "--ledger", ledger, env=environment, encoding=encoding)
    run = json.loads(for_programs.stdout)
    assert (run["job"], run["reason"]) == ("naïve", "☃")


def in_terminal(columns: int, *words: str) -> list[str]:
    """Return the lines of a command's output in a terminal of this width."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, columns))
    process = subprocess.Popen(
        [FENCEPOST, *words], stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"}
    )
    os.close(follower)
    written = b""
    with suppress(OSError):  # the end of a terminal
        while some := os.read(leader, 65536):
            written += some
    os.close(leader)
    assert process.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).splitlines()


def test_a_table_fits_into_eighty_columns_and_leaves_numbers_and_times_whole(ledger: str) -> None:
    book = open_ledger(ledger, ThreadedRuntime())
    [long] = requests.enqueue(book, [Requested(job="naïve", type="manual", due_at_us=5, why="a long story " * 20)])
    book.write(lambda cursor: cursor.execute("UPDATE fencepost_run SET token = 1794778626820197, node = 'n'"))
    book.close()
    lines = in_terminal(80, "runs", "--limit", "3", "--ledger", ledger)
    assert max(map(len, lines)) <= 80
    assert any(f" {long.run_id} " in line and "1970-01-01 00:00:00Z" in line for line in lines)
    wide = in_terminal(200, "runs", "--limit", "3", "--ledger", ledger)
    assert any("1794778626820197" in line for line in wide)
    assert not any("too narrow" in line for line in wide)
    narrow = "".join(in_terminal(40, "runs", "--limit", "1", "--ledger", ledger)).replace(" ", "")
    assert str(long.run_id) in narrow
    assert "(toonarrowfor:node,token)" in narrow


def test_what_speaks_to_a_terminal_is_spelled_out_and_what_people_write_is_not() -> None:
    assert visible("\x1b]0;title\x07\r\x9b31m") == "\\x1b]0;title\\x07\\r\\x9b31m"
    assert visible("a\u202eb\ud800") == "a\\u202eb\\ud800"
    kept = "日本語\u3000é 👩\u200d💻\n\tnaïve"
    assert visible(kept) == kept


def test_an_error_is_one_line_whatever_was_typed(ledger: str) -> None:
    for words in (["jobs", "no\nsuch\x1b[31m"], ["why", "x\ny", "--at", "1h"], ["runs", "--state", "a\x07b"]):
        done = call(*words, ledger=ledger)
        assert done.returncode in (1, 2)
        assert done.stderr.removesuffix("\n").isprintable()
