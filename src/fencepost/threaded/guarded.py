"""A guarded program, for its supervisor: the other end of the pipes of `fencepost.threaded.guardian`.

The guardian kills the program. Only if the guardian has died, or did not act by `kill_at`, this end kills the group.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from fencepost.core.masked_values import MASKED, StreamMask
from fencepost.core.runtime import ProgramExit
from fencepost.threaded import guardian
from fencepost.threaded.inherited import keep_from_children
from fencepost.threaded.passing_on import pass_on

_GONE_WITHIN_S = 0.2  # a killed process ends sooner than this, unless its parent does not reap it


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    term_at: float,
    kill_at: float,
    foreground: bool = False,
    unattended: bool = False,
    descriptors: Sequence[int] = (),
    notice: int = 0,
    on_stdout: Callable[[bytes], None] | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
) -> GuardedProgram:
    """Start `argv` under its own guardian. Raises `OSError` if the program cannot be started.

    With `unattended`, its standard input is empty, and processes that it leaves behind in its group are killed when it
    ends. It inherits `descriptors`, with the same numbers. If its trust ends, it gets the signal `notice` before
    SIGTERM.
    """
    guardian.occupy_standard_streams()
    has_foreground = foreground and _have_foreground()
    flags = guardian.FOREGROUND * has_foreground + guardian.TAKES_ALONG * unattended
    orders, control = os.pipe()
    reports, status = os.pipe()
    handed_on = ",".join(map(str, descriptors)) or "-"
    heard = {1: on_stdout, 2: on_stderr}
    overheard = {stream: _Overheard(stream, tell) for stream, tell in heard.items() if tell is not None}
    words = [str(orders), str(status), flags, repr(term_at), repr(kill_at), handed_on, str(int(notice))]
    try:
        process = subprocess.Popen(  # noqa: S603 - to run what it was given is its purpose
            [sys.executable, "-I", "-S", guardian.__file__, *words, *argv],
            env=env,
            stdin=subprocess.DEVNULL if unattended else None,
            stdout=overheard[1].entrance if 1 in overheard else None,
            stderr=overheard[2].entrance if 2 in overheard else None,
            pass_fds=(orders, status, *descriptors),
            process_group=0,  # not a new session: the program has to keep its terminal
        )
    except BaseException:
        os.close(control)
        os.close(reports)
        raise
    finally:
        os.close(orders)  # if they stayed open here, neither side would notice the end of the other
        os.close(status)
        for each in overheard.values():
            each.begin()
    program = GuardedProgram(
        process,
        control=control,
        reports=reports,
        kill_at=kill_at,
        has_foreground=has_foreground,
        overheard=tuple(overheard.values()),
    )
    program.await_start(argv[0])
    return program


class GuardedProgram:
    """A running program and its guardian."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        control: int,
        reports: int,
        kill_at: float,
        has_foreground: bool,
        overheard: Sequence[_Overheard] = (),
    ) -> None:
        self._guardian = process
        self._control = control
        self._reports = _Reports(reports)
        self._kill_at = kill_at
        self._has_foreground = has_foreground
        self._overheard = overheard
        self._ended: ProgramExit | None = None
        self._pid = 0
        self._closing = threading.RLock()  # reentrant: a signal handler may run while its thread has the lock
        os.set_blocking(control, False)  # a stopped guardian must not block this process
        keep_from_children(self)

    @property
    def pid(self) -> int:
        return self._pid

    def await_start(self, program: str) -> None:
        """Return when the program runs; raise `OSError` if it could not be started."""
        report = self._reports.next(max(self._kill_at - guardian.now(), 0.0))
        match report:
            case ["started", pid]:
                self._pid = int(pid)
            case ["ended", *_]:
                self._close(_ended(report))
            case ["failed", number]:
                self._close(ProgramExit(127))
                raise OSError(int(number), os.strerror(int(number)), program)
            case None:  # too late; when the pipe is closed, the guardian ends what it may have started
                self._close(ProgramExit(-signal.SIGKILL, "its trust ended before it was started"))
            case _:
                self._close(ProgramExit(127))
                raise ChildProcessError(f"the guardian of {program!r} ended before it could start it")

    def extend(self, *, term_at: float, kill_at: float) -> None:
        self._kill_at = kill_at
        self._order(f"extend {term_at!r} {kill_at!r}\n")

    def signal(self, number: int) -> None:
        self._order(f"signal {int(number)}\n")

    def kill(self) -> None:
        """Kill the program's group now. If the guardian does not do it in a moment, this end does."""
        self._kill_at = guardian.now() + _GONE_WITHIN_S
        self._order("extend 0 0\n")
        self._order(f"signal {int(signal.SIGKILL)}\n")  # if it is already ending, it ignores `extend`

    def tell(self, number: int) -> None:
        """Send a signal only to the program, not to its group."""
        self._order(f"tell {int(number)}\n")

    def leave_to_parent(self) -> None:
        """In a forked child: close the pipes. The program belongs to the parent, and must end with it."""
        if self._ended is None:
            self._ended = ProgramExit(-signal.SIGKILL, "it belongs to the process that this one was forked from")
            os.close(self._control)
            self._reports.close()

    @property
    def reports(self) -> int:
        """The descriptor that becomes readable when `wait` has a result. It is closed at the end."""
        return self._reports.descriptor

    def wait(self, timeout: float) -> ProgramExit | None:
        if self._ended is not None:
            return self._ended
        report = self._reports.next(timeout)
        if report is None and guardian.now() >= self._kill_at:
            self._kill_group()  # the guardian also does, if it can
            report = self._reports.next(_GONE_WITHIN_S)
        if report:
            self._close(_ended(report))
        elif report is not None or guardian.now() >= self._kill_at:
            self._close(self._end_without_guardian())
        return self._ended

    def _order(self, line: str) -> None:
        with self._closing, suppress(BlockingIOError, BrokenPipeError):  # stopped or dead: `wait` deals with it
            if self._ended is None:
                os.write(self._control, line.encode())

    def _end_without_guardian(self) -> ProgramExit:
        self._guardian.kill()
        give_up_at = guardian.now() + _GONE_WITHIN_S
        while self._kill_group() and guardian.now() < give_up_at:
            time.sleep(0.01)
        return ProgramExit(-signal.SIGKILL, "its guardian died or did not act")

    def _kill_group(self) -> bool:
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except OSError:
            return False
        return True

    def _close(self, ended: ProgramExit) -> None:
        with self._closing:
            self._ended = ended
            os.close(self._control)
            self._reports.close()
        _leave(self._guardian)
        for each in self._overheard:
            each.finish()
        if self._has_foreground:
            _take_foreground_back(self._pid)


_lingering: list[subprocess.Popen[bytes]] = []


def _leave(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a guardian. If that takes too long on a busy machine, a later call reaps it."""
    _lingering[:] = [each for each in _lingering if each.poll() is None]
    try:
        process.wait(_GONE_WITHIN_S)
    except subprocess.TimeoutExpired:
        _lingering.append(process)


class _Overheard:
    """Passes a program's standard output or error on to our own, without values of secrets, and as it is to a callback.

    What may be the beginning of a value waits for what follows.
    """

    def __init__(self, stream: int, tell: Callable[[bytes], None]) -> None:
        self._stream = stream
        self._tell = tell
        self._exit, self.entrance = os.pipe()
        self._mask = StreamMask(MASKED)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, name="fencepost-program-output", daemon=True)

    def begin(self) -> None:
        """Close our copy of the writing end, and read until all others are closed."""
        os.close(self.entrance)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the rest, but only for a moment: a process that left the group may keep the pipe open."""
        self._thread.join(_GONE_WITHIN_S)
        self._pass_on_rest()

    def _pass_on(self) -> None:
        with os.fdopen(self._exit, "rb", buffering=0) as written:
            while chunk := written.read(65536):
                self._tell(chunk)
                with self._lock:
                    pass_on(self._stream, self._mask.masked(chunk))
        self._pass_on_rest()

    def _pass_on_rest(self) -> None:
        """Pass on what may have been the beginning of a value, and begin anew."""
        with self._lock:
            pass_on(self._stream, self._mask.rest())


class _Reports:
    """The lines on the status pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._unread = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def next(self, timeout: float) -> list[str] | None:
        """Return the words of the next report, an empty list at the end of file, or None after `timeout` seconds."""
        give_up_at = guardian.now() + timeout
        while b"\n" not in self._unread:
            if not self._poll.poll(1000 * max(give_up_at - guardian.now(), 0.0)):
                return None
            if not (received := os.read(self.descriptor, 4096)):
                return []
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().split()

    def close(self) -> None:
        os.close(self.descriptor)


def _ended(report: list[str]) -> ProgramExit:
    _, status, *reason = report
    return ProgramExit(int(status), " ".join(reason) or None)


def _have_foreground() -> bool:
    """Whether standard input is a terminal, and this process is in its foreground."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _take_foreground_back(program_group: int) -> None:
    """Take the terminal's foreground back, unless another group than the program's has it by now."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # which would stop a background process
    try:
        if os.tcgetpgrp(0) == program_group:
            os.tcsetpgrp(0, os.getpgrp())
    except OSError:
        return  # the terminal is gone
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
