"""Where the signals go that this process receives, at each stage of its life."""

from __future__ import annotations

from fencepost.cli.exits import Exit
from fencepost.core.runtime import GuardedProcess

FORWARDED = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")


class SignalRelay:
    """Before there is a program, a signal ends this command; while it starts, signals wait; then it gets them."""

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
            self.ended_by = number  # noted as well: what is raised in the middle of a driver may be swallowed there
            raise SystemExit(Exit.SIGNALLED + number)

    def is_wanted(self) -> bool:
        """Whether nobody has ended this command yet."""
        return self.ended_by is None

    def keep(self) -> None:
        """Keep signals from now on: there will be a program to take them."""
        self._waiting = []

    def forward_to(self, program: GuardedProcess) -> None:
        """Hand over what was kept, and all that follows."""
        self._program = program
        for number in self._waiting or ():
            program.signal(number)
