"""Files behind a fence: stale writers leave them untouched, and a crash leaves one content or the other, whole."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.core.fencing import FencingToken, Mark
from fencepost.errors import LeaseLost, StoreUnavailable, UnsafeStore
from fencepost.fence import file
from fencepost.fences import file_mark, write_fenced
from fencepost.threaded import ThreadedRuntime

RUNTIME = ThreadedRuntime()


def token(number: int, grant_id: str | None = None) -> FencingToken:
    return FencingToken("job:report", number, grant_id or f"grant-{number}", f"node-{number}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.csv"


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_what_is_written_is_there_and_nothing_else_but_the_sidecar(path: Path) -> None:
    write_fenced(path, "a,b\nÄ,1\n", token(7))
    assert path.read_bytes() == "a,b\nÄ,1\n".encode()
    write_fenced(path, b"\x00\xff", token(7))
    assert path.read_bytes() == b"\x00\xff"
    assert file_mark(path) == Mark(7, "grant-7", "node-7")
    assert names(path.parent) == [".report.csv.fence", "report.csv"]


def test_a_stale_writer_leaves_the_file_untouched(path: Path) -> None:
    write_fenced(path, "new", token(8))
    before = path.stat()
    with pytest.raises(LeaseLost, match=r"node-8.*token 8; nothing was written"):
        write_fenced(path, "old", token(7))
    assert path.read_text() == "new"
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert names(path.parent) == [".report.csv.fence", "report.csv"]


def test_an_equal_token_of_another_grant_is_refused(path: Path) -> None:
    write_fenced(path, "a", token(7, "a"))
    with pytest.raises(LeaseLost, match="another grant"):
        write_fenced(path, "b", token(7, "b"))
    assert path.read_text() == "a"


def test_marks_rise_many_times_in_the_same_few_bytes(path: Path) -> None:
    for number in range(1, 40):
        write_fenced(path, str(number), token(number, f"{number}-" + "ä" * 500))
        with pytest.raises(LeaseLost):
            write_fenced(path, "old", token(number - 1))
    assert (path.parent / ".report.csv.fence").stat().st_size == 2 * 4096
    assert path.read_text() == "39"


def test_a_token_from_the_future_does_not_close_the_fence(path: Path) -> None:
    with pytest.raises(LeaseLost, match="a day ahead"):
        write_fenced(path, "x", token(RUNTIME.wall_us() + 25 * 3600 * 1_000_000))
    write_fenced(path, "y", token(RUNTIME.wall_us()))
    assert path.read_text() == "y"


def test_a_mark_whose_writing_was_cut_off_leaves_the_one_before(path: Path) -> None:
    write_fenced(path, "7", token(7))
    write_fenced(path, "8", token(8))
    sidecar = path.parent / ".report.csv.fence"
    content = bytearray(sidecar.read_bytes())
    content[4096 + 20] ^= 1
    sidecar.write_bytes(content)
    assert file_mark(path) == Mark(7, "grant-7", "node-7")
    sidecar.write_bytes(content[: 4096 + 30])
    assert file_mark(path) == Mark(7, "grant-7", "node-7")


def test_rights_stay_and_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    path.write_text("by hand")
    path.chmod(0o640)
    link = tmp_path / "elsewhere" / "link.csv"
    link.parent.mkdir()
    link.symlink_to(path)
    write_fenced(link, "fenced", token(7))
    assert link.is_symlink()
    assert path.read_text() == "fenced"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(LeaseLost):
        write_fenced(path, "old", token(6))


def test_a_crash_at_any_step_leaves_the_old_or_the_new_whole(tmp_path: Path) -> None:
    program = Path(__file__).with_name("crashing_writer.py")
    done = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    *crashes, last = map(json.loads, done.stdout.splitlines())
    assert not last["crashed"]
    assert len(crashes) >= 10, "there are that many steps, and it died before each"
    contents = [each["content"] for each in crashes]
    assert set(contents) == {"old", "new"}
    assert contents == sorted(contents, reverse=True), "before the replacement the old one, after it the new one"
    for each in (*crashes, last):
        assert each["mark"] == 8 or each["content"] == "old", "no content without its mark"
        assert each["repeated"] == "new", "the same grant may write again"
        assert each["drafts"] == 0, "the next holder clears away what was left"


def test_a_writer_stopped_inside_the_lock_makes_others_give_up_in_time(path: Path) -> None:
    write_fenced(path, "old", token(7))
    holding = (
        "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    command = [sys.executable, "-c", holding, str(path.parent / ".report.csv.fence")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="locked for 100ms"):
                write_fenced(path, "new", token(8), timeout="100ms")
            assert path.read_text() == "old"
        finally:
            holder.kill()
    write_fenced(path, "new", token(8))
    assert path.read_text() == "new"
    assert names(path.parent) == [".report.csv.fence", "report.csv"]


def test_a_sidecar_deleted_while_somebody_waited_for_it_is_not_the_one_that_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fenced(path, "old", token(7))
    original, deleted = file._wait_for_lock, []

    def waited(number: int, sidecar: Path, *rest: object) -> None:
        original(number, sidecar, *rest)  # type: ignore[arg-type]
        if not deleted:
            deleted.append(sidecar)
            sidecar.unlink()

    monkeypatch.setattr(file, "_wait_for_lock", waited)
    write_fenced(path, "new", token(8))
    assert file_mark(path) == Mark(8, "grant-8", "node-8")


def test_processes_that_write_at_once_end_with_the_newest(path: Path) -> None:
    program = (
        "import sys; from fencepost.fences import *\n"
        "n = int(sys.argv[2]); t = FencingToken('k', n, f'g{n}')\n"
        "input()\n"
        "try:\n"
        "    for _ in range(20): write_fenced(sys.argv[1], str(n) * 1000, t)\n"
        "except LeaseLost: print('lost')\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, path, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in (2, 3, 1)
    ]
    try:
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        said = {
            number: writer.communicate(timeout=60)[0].strip() for number, writer in zip((2, 3, 1), writers, strict=True)
        }
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert path.read_text() == "3" * 1000
    assert said[3] == ""


def test_a_network_file_system_is_refused_unless_accepted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = path.parent / "mountinfo"
    told.write_text(f"30 22 0:25 / {os.path.realpath(path.parent)} rw - nfs4 nas:/export rw\n")
    monkeypatch.setattr(file, "_MOUNTINFO", told)
    with pytest.raises(UnsafeStore, match="nfs4, a network file system") as refused:
        write_fenced(path, "x", token(7))
    assert not path.exists()
    write_fenced(path, "x", token(7), accept_risk=refused.value.risk)
    assert path.read_text() == "x"
