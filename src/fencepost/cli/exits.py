"""The exit codes. Where `sysexits.h` defines a number, it is used."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of ``fencepost``; in other cases ``fencepost exec`` returns the code of its program."""

    OK = 0
    UNKNOWN = 1  # there is no such lock, job, schedule or run
    BAD_INPUT = 2  # also: the store or the ledger cannot be reached
    NOT_WELL = 3  # the run that was waited for did not succeed; or something needs a person
    DUPLICATE = 4  # the same request has not ended yet; nothing was done
    FAILED = 70  # EX_SOFTWARE: a part of the node failed, and it left
    LOST = 74  # EX_IOERR: the lease was lost and the program was ended
    HELD = 75  # EX_TEMPFAIL: the lock is held elsewhere
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    SIGNALLED = 128  # plus the number of the signal
    INTERRUPTED = 130


def exit_code(status: int) -> int:
    """Convert a process's status (minus the signal it died of) to the code that a shell would report."""
    return status if status >= 0 else Exit.SIGNALLED - status
