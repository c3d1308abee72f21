"""The options of ``fencepost exec``.

Parsed by argparse, not by typer: importing typer alone takes longer than starting the rest of the command, and cron
runs it every minute on every machine.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from fencepost.core.duration import typed_duration
from fencepost.errors import ConfigurationError

STORE_VARIABLE = "FENCEPOST_STORE"
_PROGRAM_LAST = "write it last, after --, as in: exec --lock NAME -- ./job.sh"

_DESCRIPTION = """\
Run a program while holding a lock, on one machine of many.

The lock is renewed while the program runs. If it is lost, the program's whole process group is stopped (SIGTERM, then
SIGKILL) before another holder can get the lock, also when this command itself is killed or paused.
"""

_EPILOG = """\
the program finds in its environment:
  FENCEPOST_LOCK    the name of the lock
  FENCEPOST_TOKEN   the fencing token: pass it to the system that refuses older ones
  FENCEPOST_GRANT   the unique id of this grant
  FENCEPOST_TICK    the due time, if there is one

exit codes:
  the program's own (128+n if it died of signal n), or
  0    the tick has been done already; the program did not run
  2    bad input, or the store cannot be reached; the program did not run
  74   the lock was lost, and the program was stopped
  75   the lock is held elsewhere; the program did not run
  126  the program cannot be executed
  127  the program was not found

examples:
  fencepost exec --store postgresql://db/app --lock nightly -- ./nightly.sh
  fencepost exec --store redis://cache --lock report --wait 5s --at-least 30s -- ./report.sh
  FENCEPOST_STORE=etcd://etcd fencepost exec --lock settle --tick 'auto:*/5 * * * *' -- ./settle.sh
"""


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """The parsed options. Only their form has been checked."""

    store: str
    lock: str
    ttl: str
    wait: str
    at_least: str
    tick: str | None
    zone: str | None
    at_most_once: bool
    log_format: str
    verbosity: int
    program: tuple[str, ...]


def parse(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> ExecOptions:
    """Parse the words after ``exec``; raise `ConfigurationError` if they are wrong."""
    if "--" in words:
        split = list(words).index("--")
        options, program = words[:split], tuple(words[split + 1 :])
    else:
        options, program = words, ()
    found, unknown = _parser().parse_known_args(options)
    if unknown:
        raise ConfigurationError(_not_understood(unknown, has_program=bool(program)))
    if found.lock is None:
        raise ConfigurationError("exec needs the name of a lock: give --lock NAME (see fencepost exec --help)")
    store = found.store or environment.get(STORE_VARIABLE, "")
    if not store:
        raise ConfigurationError(f"exec needs a store: give --store URL or set {STORE_VARIABLE}")
    if not program:
        raise ConfigurationError(f"exec needs a program: {_PROGRAM_LAST}")
    if not program[0]:
        raise ConfigurationError(f"exec needs a program, and the word after -- is empty: {_PROGRAM_LAST}")
    return ExecOptions(
        store=store,
        lock=found.lock,
        ttl=typed_duration(found.ttl, what="--ttl") or "",
        wait=typed_duration(found.wait, what="--wait") or "",
        at_least=typed_duration(found.at_least, what="--at-least") or "",
        tick=found.tick,
        zone=found.tz,
        at_most_once=found.at_most_once,
        log_format=found.log_format,
        verbosity=-1 if found.quiet else found.verbose,
        program=program,
    )


def _not_understood(words: Sequence[str], *, has_program: bool) -> str:
    """Name only the first word: the next ones are its value, or the rest of a program."""
    if not words[0].startswith("-"):
        advice = "see fencepost exec --help" if has_program else f"if it is the program, {_PROGRAM_LAST}"
        return f"exec does not know what to do with {words[0]!r}; {advice}"
    return f"exec has no option {words[0].partition('=')[0]!r} (see fencepost exec --help)"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise one line, as for all bad input, instead of printing the usage."""
        raise ConfigurationError(f"exec: {message} (see fencepost exec --help)")


def _parser() -> _Parser:
    parser = _Parser(
        prog="fencepost exec",
        usage="fencepost exec --store URL --lock NAME [options] -- program args…",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--store", metavar="URL", help=f"where the lock is kept; default: ${STORE_VARIABLE}, which ps does not show")
    add("--lock", metavar="NAME", help="the name of the lock")
    add("--ttl", default="30s", metavar="TIME", help="how long others wait after this process crashes (default 30s)")
    add("--wait", default="0s", metavar="TIME", help="how long to wait for a lock that is held (default: not at all)")
    add("--at-least", default="0s", metavar="TIME", help="keep the lock closed at least this long after taking it")
    add("--tick", metavar="TIME", help="the due time this run is for, 2026-01-01T00:00Z, or auto:CRON for the latest")
    add("--tz", metavar="ZONE", help="the time zone of auto:CRON (default UTC)")
    add("--at-most-once", action="store_true", help="a tick counts as done when it starts, not when it ends with 0")
    add("--log-format", choices=("text", "json"), default="text", help="how to write to standard error (default text)")
    add(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="log what happens to the lock; given twice, also each renewal",
    )
    add("-q", "--quiet", action="store_true", help="say nothing but errors")
    return parser
