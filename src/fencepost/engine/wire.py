"""What supervisor and worker say to each other, as JSON.

To the worker: a greeting, then claims, one per message. From it, in lines: ``["ready"]`` or ``["failed", why]``, then
one line per claim: its serial number, how it ended, how long it took, and what else the outcome says, as far as it
says anything. ``["interrupted", …]`` before that says that the job was stopped from outside: the supervisor knows
why, and the worker ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.core.runs import Claim
from fencepost.engine.runners.outcome import How, Outcome

READY = b'["ready"]\n'
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_SUCCEEDED = How.SUCCEEDED.value
_NOTHING_ELSE = (None,) * 6


class Greeting(NamedTuple):
    """What a worker is told first.

    `app` is the application to load, `node` the name of the node it works for, `prepare` a function (also as
    ``module:name``) to call before, where logs are set up; `modules` declare jobs of the application, too. `output`:
    two pipes, by their numbers, that its standard output and error are to lead into, and what marks frames in them.
    """

    app: str
    node: str | None = None
    prepare: str | None = None
    modules: tuple[str, ...] = ()
    output: tuple[int, int, str] | None = None


def greeting_message(greeting: Greeting) -> bytes:
    """Spell a greeting."""
    return _encode(greeting).encode()


def read_greeting(message: bytes) -> Greeting:
    """Read one."""
    app, node, prepare, modules, output = json.loads(message)
    return Greeting(app, node, prepare, tuple(modules), None if output is None else tuple(output))


def claim_message(serial: int, claim: Claim) -> bytes:
    """Spell a claim."""
    return _encode((serial, claim)).encode()


def serial_of(beginning: bytes) -> int:
    """Read the serial number at the beginning of a claim's message."""
    return int(beginning[1 : beginning.index(b",")])


def read_claim(message: bytes) -> tuple[int, Claim]:
    """Read one."""
    serial, fields = json.loads(message)
    return serial, Claim._make(fields)


def outcome_line(serial: int, outcome: Outcome) -> bytes:
    """Spell how a claim ended; most end well and have nothing to say."""
    if outcome.how == _SUCCEEDED and outcome[5:] == _NOTHING_ELSE:
        return b'[%d,"succeeded",%d]\n' % (serial, outcome.took_us)
    return _encode((serial, *outcome[3:])).encode() + b"\n"


def interrupted_line(serial: int, outcome: Outcome) -> bytes:
    """Spell that a claim was interrupted, and what became of it."""
    return b'["interrupted",' + outcome_line(serial, outcome)[1:]


def failed_line(why: str) -> bytes:
    """Spell that the worker could not begin."""
    return _encode(["failed", why]).encode() + b"\n"


def read_lines(lines: Sequence[bytes]) -> list[list[Any]]:
    """Read what a worker wrote, many lines at once."""
    answers: list[list[Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    return answers


def outcome_of(claim: Claim, answer: Sequence[Any]) -> Outcome:
    """Make the outcome of a claim from its line."""
    return Outcome(claim.run_id, claim.attempt, claim.token, *answer[1:])
