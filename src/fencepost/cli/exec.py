"""``fencepost exec``: run a program while holding a lock.

The order is what makes it safe: take the lock → start the program under a guardian that already has its deadlines →
extend the deadlines while the lock is renewed → release the lock only after the program has ended. If this process
dies or stalls in between, the guardian ends the program before another holder can get the lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from logging import ERROR, INFO, WARNING

from fencepost.cli import messages
from fencepost.cli.exec_options import ExecOptions, parse
from fencepost.cli.exec_tick import tick_of
from fencepost.cli.exits import Exit, exit_code
from fencepost.cli.signal_relay import FORWARDED, SignalRelay
from fencepost.core.duration import seconds, spelled
from fencepost.core.events import Event, What
from fencepost.core.grants import AlreadyDone, Held
from fencepost.core.names import lock_name
from fencepost.core.runtime import ProgramExit, Runtime
from fencepost.core.tick import Tick, spelled_us
from fencepost.core.timings import Timings
from fencepost.errors import StoreUnavailable
from fencepost.leases.guard import ProgramDeadlines, guard
from fencepost.leases.lease import Lease
from fencepost.leases.lock import give_back
from fencepost.leases.locks import Locks
from fencepost.locks import connect
from fencepost.threaded import ThreadedRuntime


def main(words: Sequence[str]) -> int:
    """Run ``fencepost exec`` and return its exit code."""
    options = parse(words)
    messages.configure(log_format=options.log_format, verbosity=options.verbosity)
    return LockedProgram(options, ThreadedRuntime()).run()


_RETRY_AFTER_S = 1.0  # drawn between half of it and all of it, so that many commands do not ask in step


class LockedProgram:
    """One execution of one program under one lock."""

    def __init__(self, options: ExecOptions, runtime: Runtime) -> None:
        """Check all that can be checked without the store."""
        self._options = options
        self._runtime = runtime
        self._relay = SignalRelay()
        self._name = lock_name(options.lock)
        self._timings = Timings.of(options.ttl)
        self._give_up_at = runtime.monotonic() + seconds(options.wait, what="wait")
        self._at_least_s = seconds(options.at_least, what="at-least")
        self._tick = tick_of(options, runtime)
        self._is_release_unanswered = False

    def run(self) -> int:
        """Take the lock, run the program, release the lock."""
        if (missing := self._program_is_missing()) is not None:
            return missing
        with (
            self._relay.swallowed_quietly(),
            self._runtime.on_signals(FORWARDED, self._relay.receive),
            self._connected() as locks,
        ):
            return self._run_with(locks)

    def _connected(self) -> Locks:
        """Connect. Retry a store that does not answer, or has no connection free, for as long as --wait allows."""
        while True:
            try:
                return connect(self._options.store, observers=[self._note], runtime=self._runtime)
            except StoreUnavailable:
                if self._runtime.monotonic() + _RETRY_AFTER_S >= self._give_up_at or not self._relay.is_active():
                    raise
            self._runtime.sleep(_RETRY_AFTER_S * (0.5 + self._runtime.random() / 2))

    def _run_with(self, locks: Locks) -> int:
        left_s = max(self._give_up_at - self._runtime.monotonic(), 0.0)
        lock = locks.lock(self._name, ttl=self._timings.ttl_s, wait=left_s, at_least=self._at_least_s, tick=self._tick)
        outcome = lock.attempt(self._relay.is_active)
        if self._relay.ended_by is not None:
            give_back(outcome)
            return Exit.SIGNALLED + self._relay.ended_by
        match outcome:
            case Held():
                return self._say_held(outcome, locks)
            case AlreadyDone():
                return self._say_done(outcome)
        self._relay.keep()
        return self._run_under(outcome, locks)

    def _run_under(self, lease: Lease, locks: Locks) -> int:
        try:
            ended = self._guarded(lease)
        except OSError as error:
            lease.release(done=False)
            return self._say_not_started(error)
        if ended.forced is not None or lease.lost:
            return self._say_lost(lease, ended)
        if not lease.release(done=ended.status == 0):
            return self._say_lost(lease, ended)
        if self._is_release_unanswered:
            self._await_release(lease, locks)
        return exit_code(ended.status)

    def _guarded(self, lease: Lease) -> ProgramExit:
        deadlines = ProgramDeadlines.of(lease)
        program = self._runtime.guarded(
            self._options.program,
            env=environment(os.environ, lease, self._tick),
            term_at=deadlines.term_at,
            kill_at=deadlines.kill_at,
            foreground=True,
        )
        self._relay.forward_to(program)
        return guard(program, lease, runtime=self._runtime)

    def _program_is_missing(self) -> int | None:
        """Look for the program before taking the lock, so that a misspelt one does not use up a tick."""
        program = self._options.program[0]
        if shutil.which(program) is not None:
            return None
        error = (
            PermissionError(13, "Permission denied") if os.path.exists(program) else FileNotFoundError(2, "not found")
        )
        return self._say_not_started(error)

    # -- a release that the store did not confirm --------------------------------------------------------------------

    def _note(self, event: Event) -> None:
        if event.what is What.RELEASE_UNANSWERED:
            self._is_release_unanswered = True

    def _await_release(self, lease: Lease, locks: Locks) -> None:
        """Wait while the release is retried in the background: it records that the tick is done."""
        while self._runtime.monotonic() < lease.trusted_until:
            try:
                record = locks.read(self._name)
            except StoreUnavailable:
                self._runtime.sleep(self._timings.retry_every_s)
                continue
            if record is None or record.grant_id != lease.grant_id:
                return
            self._runtime.sleep(self._timings.retry_every_s)
        and_the_tick = f", and tick {self._tick} may be done again" if self._tick else ""
        self._say(WARNING, f"the store did not confirm the release of {self._name!r}; it frees itself{and_the_tick}")

    # -- messages ----------------------------------------------------------------------------------------------------

    def _say_held(self, held: Held, locks: Locks) -> int:
        since = self._held_since(held, locks)
        if held.holder is None:
            for_s = f" for another {spelled(round(held.free_in_s, 1))}" if held.free_in_s else ""
            self._say(WARNING, f"lock {self._name!r} is kept closed{for_s} (token {held.token})", token=held.token)
        else:
            by = f"by {held.holder} (token {held.token}{f', since {since}' if since else ''})"
            message = f"lock {self._name!r} is held {by}"
            self._say(WARNING, message, holder=held.holder, token=held.token, since=since)
        return Exit.HELD

    def _held_since(self, held: Held, locks: Locks) -> str | None:
        try:
            record = locks.read(self._name)
        except StoreUnavailable:
            return None
        if record is None or record.token != held.token or record.acquired_at_us is None:
            return None
        return spelled_us(record.acquired_at_us)

    def _say_done(self, done: AlreadyDone) -> int:
        last = spelled_us(done.last_tick_us)
        self._say(INFO, f"lock {self._name!r}: tick {done.tick} is already done (last done: {last})", last=last)
        return Exit.OK

    def _say_lost(self, lease: Lease, ended: ProgramExit) -> int:
        why = lease.lost_reason or ended.forced or "unknown"
        program = self._options.program[0]
        fate = f"{program} was stopped" if ended.forced else f"{program} had ended with {exit_code(ended.status)}"
        message = f"lost lock {self._name!r} (token {lease.token}): {why}; {fate}"
        self._say(ERROR, message, token=lease.token, reason=why, forced=ended.forced)
        return Exit.LOST

    def _say_not_started(self, error: OSError) -> int:
        is_absent = isinstance(error, FileNotFoundError)
        self._say(ERROR, f"cannot run {self._options.program[0]!r}: {error.strerror or error}")
        return Exit.NOT_FOUND if is_absent else Exit.NOT_EXECUTABLE

    def _say(self, level: int, message: str, **fields: object) -> None:
        messages.log(level, message, lock=self._name, tick=str(self._tick) if self._tick else None, **fields)


def environment(inherited: os._Environ[str], lease: Lease, tick: Tick | None) -> dict[str, str]:
    """Return the program's environment: that of this process, and the variables that describe the lock."""
    known = {name: value for name, value in inherited.items() if name != "FENCEPOST_TICK"}
    known |= {"FENCEPOST_LOCK": lease.name, "FENCEPOST_TOKEN": str(lease.token), "FENCEPOST_GRANT": lease.grant_id}
    return known | ({"FENCEPOST_TICK": str(tick)} if tick else {})
