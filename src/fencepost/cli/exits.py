"""What the exit codes mean. Where `sysexits.h` has a number for it, we use that one."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of ``fencepost``; ``fencepost exec`` otherwise returns those of its program."""

    OK = 0
    UNKNOWN = 1  # there is no such lock, job, schedule or run
    BAD_INPUT = 2  # also: the store or the ledger cannot be reached
    NOT_WELL = 3  # the run that was waited for has ended, and did not succeed
    DUPLICATE = 4  # what was asked for is under way already; nothing was done
    FAILED = 70  # EX_SOFTWARE: the node lost a part of itself, and left
    LOST = 74  # EX_IOERR: the lease was lost and the program was ended
    HELD = 75  # EX_TEMPFAIL: somebody else has the lock
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    SIGNALLED = 128  # plus the number of the signal
    INTERRUPTED = 130


def exit_code(status: int) -> int:
    """Turn a process's status (minus the signal it died of) into what a shell would report."""
    return status if status >= 0 else Exit.SIGNALLED - status
