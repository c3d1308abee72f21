"""A file that is replaced as a whole, and never by a writer older than the last one.

The sidecar ``.report.csv.fence`` beside ``report.csv`` has the mark. It is locked (flock) while the file is replaced.

::

    write the draft, sync it        without the lock, so no other writer waits
    lock the sidecar
      compare the mark              stale: LeaseLost, the file is unchanged
      raise the mark, sync it
      replace the file by the draft, sync the folder
    unlock

**Promises.** Readers see either the complete old content or the complete new content, at any moment and after a crash
at any point, including a crash of the machine. Once a newer holder has written, an older one cannot. The mark is raised
before the content is replaced. After a crash between the two, the old content is behind the new mark, and the writer
with that token may write again.

**Not promised.** Anything if the sidecar is deleted: the next writer then counts as the first one. A process that is
stopped while it has the lock blocks others until it continues. They give up after `timeout` and have written nothing.

**Needs** a local file system, or one where flock works between all machines that write. Network file systems are
refused, because flock does not work on many of them, unless the risk is accepted.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from fencepost.core import mounts
from fencepost.core.duration import spelled
from fencepost.core.fencing import NOTHING_WRITTEN, Claimant, FencingToken, Mark, fencing_of, refusal
from fencepost.core.identity import fitted
from fencepost.core.runtime import Runtime
from fencepost.errors import LeaseLost, StoreUnavailable, UnsafeStore

RISK = "network-filesystem"
TIMEOUT_S = 10.0  # the lock is held for two syncs and a rename, so a longer wait means a stopped process
_MOUNTINFO = Path("/proc/self/mountinfo")
_LOOK_EVERY_S = 0.01  # flock with a timeout needs polling; short beside the syncs that the holder does
_SLOT = 4096  # the mark has two slots: while one is written, the other stays intact
_DRAFT = ".draft"


def write_fenced(
    path: str | os.PathLike[str],
    content: bytes | str,
    claimant: Claimant,
    *,
    runtime: Runtime,
    timeout_s: float = TIMEOUT_S,
    accept_risk: str | None = None,
) -> None:
    """Replace the file at `path` with `content`, or raise `LeaseLost` and leave it unchanged. Text is written as UTF-8.

    Raises `StoreUnavailable` if another process keeps the sidecar locked for longer than `timeout_s`.
    """
    offered = _fitted(fencing_of(claimant))
    target = Path(os.path.realpath(path))  # replace the target of a symbolic link, not the link
    if accept_risk != RISK:
        _refuse_network(target.parent)
    draft = target.with_name(f".{target.name}.{offered.token}.{runtime.new_id()}{_DRAFT}")
    try:
        _write_draft(draft, content.encode() if isinstance(content, str) else content, like=target)
        with _locked(_sidecar(target), runtime, timeout_s) as sidecar:
            _raise_mark(sidecar, offered, target, now_us=runtime.wall_us())
            draft.replace(target)
            _sync_folder(target.parent)
            _remove_drafts_below(offered.token, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def file_mark(path: str | os.PathLike[str]) -> Mark | None:
    """Return the mark in the sidecar of the file at `path`; None if it was never written through a fence."""
    try:
        with _sidecar(Path(os.path.realpath(path))).open("rb") as file:
            return _newest(_slots(file.read(2 * _SLOT)))
    except FileNotFoundError:
        return None


def _write_draft(draft: Path, content: bytes, *, like: Path) -> None:
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        _take_after(file.fileno(), like)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _take_after(number: int, target: Path) -> None:
    """Give the draft the permissions of the file that it will replace, and its owner if we are permitted to."""
    try:
        known = target.stat()
    except FileNotFoundError:
        return
    with suppress(PermissionError):
        os.fchown(number, known.st_uid, known.st_gid)
    os.fchmod(number, stat.S_IMODE(known.st_mode))


@contextmanager
def _locked(sidecar: Path, runtime: Runtime, timeout_s: float) -> Iterator[int]:
    give_up_at = runtime.monotonic() + timeout_s
    while True:
        number = os.open(sidecar, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _wait_for_lock(number, sidecar, runtime, give_up_at, timeout_s)
            if _is_same_file(number, sidecar):
                yield number
                return
        finally:
            os.close(number)  # this also releases the lock


def _wait_for_lock(number: int, sidecar: Path, runtime: Runtime, give_up_at: float, timeout_s: float) -> None:
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                raise
        else:
            return
        if runtime.monotonic() >= give_up_at:
            raise StoreUnavailable(
                f"another process has kept {sidecar} locked for {spelled(timeout_s)}; it may be stopped; "
                f"{NOTHING_WRITTEN}"
            )
        runtime.sleep(_LOOK_EVERY_S)


def _is_same_file(number: int, sidecar: Path) -> bool:
    """Whether the file that we locked still has its name: it may have been deleted while we waited."""
    try:
        return os.path.samestat(os.fstat(number), sidecar.stat())
    except FileNotFoundError:
        return False


def _raise_mark(sidecar: int, offered: FencingToken, target: Path, *, now_us: int) -> None:
    slots = _slots(os.pread(sidecar, 2 * _SLOT, 0))
    mark = _newest(slots)
    if (why := refusal(mark, offered, now_us=now_us)) is not None:
        raise LeaseLost(offered.key, offered.token, f"file {target}: {why}; {NOTHING_WRITTEN}")
    raised = Mark(offered.token, offered.grant_id, offered.holder)
    if mark == raised:
        return
    os.pwrite(sidecar, _slot(raised), 0 if mark is None or mark != slots[0] else _SLOT)
    os.fsync(sidecar)
    _sync_folder(target.parent)  # the sidecar may be new


def _slot(mark: Mark) -> bytes:
    text = json.dumps(mark._asdict()).encode()
    return b"\n".join((text, hashlib.sha256(text).hexdigest().encode(), b"")).ljust(_SLOT, b"\n")


def _slots(content: bytes) -> tuple[Mark | None, Mark | None]:
    return _read_slot(content[:_SLOT]), _read_slot(content[_SLOT:])


def _read_slot(content: bytes) -> Mark | None:
    """Return the mark in a slot; None if it is empty or was written incompletely, before its content was replaced."""
    text, _, digest = content.rstrip(b"\n").partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    return Mark(**json.loads(text))


def _newest(slots: tuple[Mark | None, Mark | None]) -> Mark | None:
    return max((mark for mark in slots if mark is not None), default=None, key=lambda mark: mark.token)


def _remove_drafts_below(token: int, target: Path) -> None:
    """Remove the drafts of older writers, which were killed or will be refused when they lock the sidecar."""
    start = f".{target.name}."
    for entry in target.parent.iterdir():
        if entry.name.startswith(start) and entry.name.endswith(_DRAFT):
            number = entry.name.removeprefix(start).partition(".")[0]
            if number.isdecimal() and int(number) < token:
                entry.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _sidecar(target: Path) -> Path:
    return target.with_name(f".{target.name}.fence")


def _refuse_network(folder: Path) -> None:
    try:
        file_system = mounts.file_system_of(PurePosixPath(folder), _MOUNTINFO.read_text())
    except OSError:
        return
    if mounts.is_network(file_system):
        raise UnsafeStore(
            RISK,
            f"{folder} is on {file_system}, a network file system, where file locks may not work; use a local "
            "disk, a database or an object store with conditional writes",
        )


def _fitted(offered: FencingToken) -> FencingToken:
    """Shorten the strings so that they fit into a slot."""
    return offered._replace(grant_id=fitted(offered.grant_id), holder=fitted(offered.holder))
