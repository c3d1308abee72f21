"""Handles the signals of ``fencepost exec`` before, during and after the start of its program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.cli.exits import Exit
from fencepost.core.runtime import GuardedProcess

FORWARDED = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")


class SignalRelay:
    """Before the program starts, a signal ends this command. While it starts, signals wait. Then it receives them."""

    def __init__(self) -> None:
        self._program: GuardedProcess | None = None
        self._waiting: list[int] | None = None
        self.ended_by: int | None = None

    def receive(self, number: int) -> None:
        """Pass one signal on."""
        if self._program is not None:
            self._program.signal(number)
        elif self._waiting is not None:
            self._waiting.append(number)
        else:
            self.ended_by = number  # stored as well: a driver, or a callback of Python's, may swallow the exception
            raise SystemExit(Exit.SIGNALLED + number)

    @contextmanager
    def swallowed_quietly(self) -> Iterator[None]:
        """Print no traceback where Python swallows the exception of a signal; the command ends by `ended_by` then."""
        report = sys.unraisablehook
        sys.unraisablehook = lambda what: None if issubclass(what.exc_type, SystemExit) else report(what)
        try:
            yield
        finally:
            sys.unraisablehook = report

    def is_active(self) -> bool:
        """Whether no signal has ended this command yet."""
        return self.ended_by is None

    def keep(self) -> None:
        """Queue signals from now on, for the program that is being started."""
        self._waiting = []

    def forward_to(self, program: GuardedProcess) -> None:
        """Send the program the queued signals and all later ones."""
        self._program = program
        for number in self._waiting or ():
            program.signal(number)
