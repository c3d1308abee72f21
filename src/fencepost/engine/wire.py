"""The messages between supervisor and worker, in JSON.

To the worker: a greeting, then claims, one per message. From the worker, in lines: ``["ready"]`` or
``["failed", why]``, then one line per claim with its serial number, how it ended, how long it took, and the other
fields of the outcome if any of them is set. A line that begins with ``"interrupted"`` means that the job was stopped
from outside: the supervisor knows why, and the worker ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.core.runs import Claim
from fencepost.engine.runners.outcome import How, Outcome

READY = b'["ready"]\n'
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decoded = json.JSONDecoder().raw_decode  # of a text without surroundings; takes half as long as `json.loads` of bytes
_SUCCEEDED = How.SUCCEEDED.value
_NOTHING_ELSE = (None,) * 6


class Greeting(NamedTuple):
    """The first message to a worker.

    `app` is the application to load and `node` the name of the worker's node. `prepare` is a function (also as
    ``module:name``) to call before the application is loaded, to set up logging. `modules` also declare jobs of the
    application. `output` has the numbers of two pipes for its standard output and error, and what marks frames in them.
    """

    app: str
    node: str | None = None
    prepare: str | None = None
    modules: tuple[str, ...] = ()
    output: tuple[int, int, str] | None = None


def greeting_message(greeting: Greeting) -> bytes:
    """Encode a greeting."""
    return _encode(greeting).encode()


def read_greeting(message: bytes) -> Greeting:
    """Decode a greeting."""
    app, node, prepare, modules, output = json.loads(message)
    return Greeting(app, node, prepare, tuple(modules), None if output is None else tuple(output))


def claim_message(serial: int, claim: Claim) -> bytes:
    """Encode a claim."""
    return _encode((serial, claim)).encode()


def serial_of(beginning: bytes) -> int:
    """Read the serial number at the beginning of a claim's message."""
    return int(beginning[1 : beginning.index(b",")])


def read_claim(message: bytes) -> tuple[int, Claim]:
    """Decode a claim."""
    serial, fields = _decoded(message.decode())[0]
    return serial, Claim._make(fields)


def outcome_line(serial: int, outcome: Outcome) -> bytes:
    """Encode an outcome. The first case is a shortcut for the most common one, success without a result."""
    if outcome.how == _SUCCEEDED and outcome[5:] == _NOTHING_ELSE:
        return b'[%d,"succeeded",%d]\n' % (serial, outcome.took_us)
    return _encode((serial, *outcome[3:])).encode() + b"\n"


def interrupted_line(serial: int, outcome: Outcome) -> bytes:
    """Encode the outcome of a claim that was interrupted."""
    return b'["interrupted",' + outcome_line(serial, outcome)[1:]


def failed_line(why: str) -> bytes:
    """Encode that the worker could not load the application."""
    return _encode(["failed", why]).encode() + b"\n"


def read_lines(lines: Sequence[bytes]) -> list[list[Any]]:
    """Decode the lines of a worker, many at once."""
    answers: list[list[Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    return answers


def outcome_of(claim: Claim, answer: Sequence[Any]) -> Outcome:
    """Make the outcome of a claim from its line."""
    return Outcome(claim.run_id, claim.attempt, claim.token, *answer[1:])
