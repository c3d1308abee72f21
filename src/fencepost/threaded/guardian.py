"""The guardian: a separate process that ends a program unless its supervisor keeps extending its deadlines.

It is the parent of one program, and ends the program's whole process group. It runs as ``python -I -S guardian.py …``,
imports only a few small modules of the standard library, has one thread and never calls a store. So it is not affected
by anything that pauses or blocks the supervisor::

    supervisor ──control pipe──▶ guardian ──fork, exec──▶ program (and its descendants: one process group)
               ◀──status pipe──

               extend: later deadlines
                  ┌────────┐
                  ▼        │   term_at passed, or end of file     kill_at passed
    (start) ──▶ RUNNING ───┴──────────▶ ENDING [TERM] ──────────────▶ [KILL]
                  │                        │ group is gone              │
                  ▼ program ended          ▼                            ▼
                report                   report                       report

**Promises.** The group gets SIGTERM at `term_at` and SIGKILL at `kill_at`, both readings of CLOCK_BOOTTIME, which is
the same for all processes and also counts while the machine is suspended. When the supervisor has ended (end of file on
the control pipe), the group gets SIGTERM at once and SIGKILL at most a second later. An extension that arrives after
SIGTERM has no effect. If the guardian itself is killed, the kernel kills the program (PR_SET_PDEATHSIG, on Linux), and
the supervisor, which sees end of file on the status pipe, kills the rest of the group.

**Not promised.** Processes that left the group (``setsid``), or that run as a user whom we may not signal, are not
ended. If a program ends by itself, its background children continue, unless the guardian was started with the flag
that kills them.

Control, one line each: ``extend TERM_AT KILL_AT``, ``signal NUMBER`` (to the group), ``tell NUMBER`` (only to the
program). Status: ``started PID``, then ``ended STATUS REASON…``, without a reason if the program ended by itself; or
only ``failed ERRNO``.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
ORPHAN_GRACE_S = 1.0  # the lease of a dead supervisor is no longer renewed, so there is little time
_LONGEST_NAP_S = 1.0  # poll uses a clock that stops while the machine is suspended, so CLOCK_BOOTTIME is read again
_ENDING_NAP_S = 0.02  # how often to check whether the group has ended: no signal announces it
_PR_SET_PDEATHSIG = 1  # as Linux numbers it
_IGNORED = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "TSTP", "TTIN", "TTOU", "PIPE", "XFSZ")
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_LOOK_ONLY = os.WEXITED | os.WNOHANG | os.WNOWAIT
FOREGROUND, TAKES_ALONG = "f", "a"

_Dispositions = dict[signal.Signals, "signal.Handlers | None"]


class Guardian:
    """Watches one running program. `run` returns after the program has ended and this was reported."""

    def __init__(
        self,
        *,
        control: int,
        status: int,
        wakeup: int,
        pid: int,
        term_at: float,
        kill_at: float,
        takes_along: bool = False,
        notice: int = 0,
    ) -> None:
        self._control = control
        self._status = status
        self._wakeup = wakeup
        self._pid = pid
        self._takes_along = takes_along
        self._notice = notice
        self._term_at = term_at
        self._kill_at = kill_at
        self._exit_code: int | None = None
        self._reason = ""
        self._is_killed = False
        self._unread = b""
        self._poll = select.poll()
        for descriptor in (control, wakeup):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        while not self._is_over():
            self._sleep()
            self._act_on_time()
        tell(self._status, f"ended {self._exit_code} {self._reason}")

    def _is_over(self) -> bool:
        if self._exit_code is None:
            if self._takes_along and os.waitid(os.P_PID, self._pid, _LOOK_ONLY) is not None:
                self._signal_group(signal.SIGKILL)  # before it is reaped, while its pid cannot be reused
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
        if self._exit_code is None:
            return False
        return not self._reason or self._is_killed or not self._signal_group(0)

    def _sleep(self) -> None:
        next_at = self._kill_at if self._reason else self._term_at
        longest_s = _ENDING_NAP_S if self._reason else _LONGEST_NAP_S
        for descriptor, _ in self._poll.poll(1000 * max(min(next_at - now(), longest_s), 0.0)):
            if descriptor == self._control:
                self._listen()
            else:
                os.read(self._wakeup, 4096)

    def _listen(self) -> None:
        received = os.read(self._control, 65536)
        if not received:
            self._poll.unregister(self._control)
            self._end("the supervisor is gone", kill_at=min(self._kill_at, now() + ORPHAN_GRACE_S))
            return
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            self._obey(line.split())
            self._act_on_time()  # after each line: an order to end now must not be undone by the next one

    def _obey(self, words: list[bytes]) -> None:
        if words[0] == b"signal":
            self._signal_group(int(words[1]))
        elif words[0] == b"tell":
            self._signal_program(int(words[1]))
        elif words[0] == b"extend" and not self._reason:
            self._term_at, self._kill_at = float(words[1]), float(words[2])

    def _act_on_time(self) -> None:
        if not self._reason and now() >= self._term_at:
            self._end("its trust was not extended", kill_at=self._kill_at)
        if self._reason and not self._is_killed and now() >= self._kill_at:
            self._signal_group(signal.SIGKILL)
            self._is_killed = True

    def _end(self, reason: str, *, kill_at: float) -> None:
        self._kill_at = kill_at
        if self._reason:
            return
        self._reason = reason
        if self._notice:
            self._signal_program(self._notice)
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)  # a stopped process handles SIGTERM only after it continues

    def _signal_program(self, number: int) -> None:
        if self._exit_code is None:  # not reaped, so its pid cannot be reused
            try:
                os.kill(self._pid, number)
            except OSError:
                return

    def _signal_group(self, number: int) -> bool:
        """Signal the group. Returns False if no process is left in it (or none that we may signal)."""
        try:
            os.killpg(self._pid, number)
        except OSError:
            return False
        return True


def main(argv: list[str]) -> None:
    """Start the program that follows the first seven arguments, and guard it.

    They are: two pipes, flags, two deadlines, descriptors (``5,6``, or ``-`` for none) that the program inherits and
    that are closed here, and the number of a signal (or 0) that tells only the program to end. SIGTERM would not do:
    a service manager sends it to all processes, and a worker must continue until its supervisor decides.
    """
    control, status, flags = int(argv[0]), int(argv[1]), argv[2]
    term_at, kill_at = float(argv[3]), float(argv[4])
    handed_on, notice = [int(number) for number in argv[5].split(",") if number != "-"], int(argv[6])
    occupy_standard_streams()
    for descriptor in (control, status):
        os.set_inheritable(descriptor, False)
    before, wakeup = _ignore_signals(), _wake_when_a_child_ends()
    if now() >= term_at:
        tell(status, "ended 0 its trust ended before it was started")
        return
    pid, errno = _start(argv[7:], before=before, foreground=FOREGROUND in flags)
    for descriptor in handed_on:
        os.close(descriptor)  # if they stayed open here, their reader would not notice the end of the program
    if errno:
        tell(status, f"failed {errno}")
        return
    tell(status, f"started {pid}")
    _leave_standard_streams()
    Guardian(
        control=control,
        status=status,
        wakeup=wakeup,
        pid=pid,
        term_at=term_at,
        kill_at=kill_at,
        takes_along=TAKES_ALONG in flags,
        notice=notice,
    ).run()


def now() -> float:
    return time.clock_gettime(CLOCK)


def tell(status: int, line: str) -> None:
    """Send a report to the supervisor, if it still exists."""
    try:
        os.write(status, line.strip().encode() + b"\n")
    except OSError:
        return


def occupy_standard_streams() -> None:
    """Open /dev/null in place of a closed standard stream, so that no pipe of ours gets its number.

    It is closed on exec, so the program finds the stream closed, as it was.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is `descriptor`


def _leave_standard_streams() -> None:
    """Close our copies of the streams, so that a reader of the program's output does not wait for the guardian."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _ignore_signals() -> _Dispositions:
    """Ignore signals that terminals and service managers send to all processes; return the program's dispositions."""
    before: _Dispositions = {}
    for name in _IGNORED:
        number = signal.Signals[f"SIG{name}"]
        was_ignored = signal.signal(number, signal.SIG_IGN) is signal.SIG_IGN and number not in _PYTHON_IGNORES
        before[number] = signal.SIG_IGN if was_ignored else signal.SIG_DFL
    return before


def _wake_when_a_child_ends() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _start(program: list[str], *, before: _Dispositions, foreground: bool) -> tuple[int, int]:
    """Fork and exec; return the pid, and zero or the error number of exec."""
    reader, writer = os.pipe()  # closed by an exec that succeeds
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(program, guardian=guardian, before=before, foreground=foreground)
        except OSError as error:
            os.write(writer, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(writer)
    errno = int(os.read(reader, 16) or 0)
    os.close(reader)
    return pid, errno


def _become(program: list[str], *, guardian: int, before: _Dispositions, foreground: bool) -> None:
    """Turn this new child into the program."""
    os.setpgid(0, 0)
    if foreground:
        os.tcsetpgrp(0, os.getpid())  # SIGTTOU is still ignored here, so this does not stop the process
        before = before | {signal.SIGTSTP: signal.SIG_IGN}  # a stopped program would keep the lock
    _die_with_parent()
    if os.getppid() != guardian:  # it died before prctl took effect
        os._exit(127)
    for number, disposition in before.items():
        signal.signal(number, disposition)
    os.execvp(program[0], program)  # noqa: S606 - to run what it was given is its purpose


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies. On other systems, only the supervisor can do it."""
    try:
        import ctypes  # noqa: PLC0415 - after the fork, so that it does not cost the guardian memory

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    except (ImportError, AttributeError, OSError):
        return


if __name__ == "__main__":
    main(sys.argv[1:])
