"""One connection to a server on which every answer is due by a deadline; redis-py speaks the protocol.

redis-py's own client is left out: it costs as much as the round trip itself, tries again in ways that we do
not want, and its timeouts count anew with every step of connecting and reading. Its `Connection` does what
is needed: addresses, TLS, credentials and parsing (by hiredis, where installed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fencepost.leases.stores.redis.scripts import Command, spelled_out

_SHORTEST_S = 0.001  # a timeout of zero would mean: do not wait at all


class Wire(Connection):
    """A connection for one conversation at a time. Set `answer_by` (monotonic) before each."""

    def __init__(self, *, clock: Callable[[], float], answer_by: float, **settings: Any) -> None:
        self.clock = clock
        self.answer_by = answer_by
        super().__init__(**settings)  # type: ignore[no-untyped-call]

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Read one answer, also one of the handshake, within what is left of the time."""
        left_s = self.answer_by - self.clock()
        options["timeout"] = left_s if left_s > _SHORTEST_S else _SHORTEST_S
        return super().read_response(*arguments, **options)

    def send(self, *commands: Command) -> None:
        """Send without waiting for an answer."""
        self.send_packed_command([b"".join(map(_packed, commands))], check_health=False)  # type: ignore[no-untyped-call]

    def ask(self, command: Command) -> Any:
        """Send one command and return its answer: one round trip, unless the server has to learn a script."""
        self.send_packed_command([_packed(command)], check_health=False)  # type: ignore[no-untyped-call]
        try:
            return self.read_response()
        except NoScriptError:
            return self.ask(spelled_out(command))

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands at once and return all answers: one round trip, unless there are scripts to learn."""
        self.send(*commands)
        answers = [self._answer_or_error() for _ in commands]
        for number, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):  # the first repetition teaches the script, the others use it
                answers[number] = self.ask(commands[number])
            elif isinstance(answer, ResponseError):
                raise answer
        return answers

    def subscribe(self, channel: str) -> None:
        """Listen to `channel`, and skip what is left of earlier subscriptions."""
        self.send(("SUBSCRIBE", channel))
        wanted = [b"subscribe", channel.encode()]
        while self.read_response()[:2] != wanted:
            pass

    def unsubscribe(self, channel: str) -> None:
        """Stop listening. The confirmation is skipped by the next `subscribe`, so nobody waits for it."""
        with suppress(RedisError):
            if self.is_connected:
                self.send(("UNSUBSCRIBE", channel))

    def hang_up(self) -> None:
        """Close the connection."""
        self.disconnect()  # type: ignore[no-untyped-call]

    def wait_for_message(self, channel: str) -> None:
        """Wait for a message until `answer_by`. A connection that breaks meanwhile counts as heard: look again."""
        wanted = [b"message", channel.encode()]
        try:
            while self.read_response(disconnect_on_error=False)[:2] != wanted:
                pass
        except RedisTimeoutError:
            return
        except RedisConnectionError:
            self.hang_up()

    def _answer_or_error(self) -> Any:
        try:
            return self.read_response()
        except ResponseError as error:
            return error


def _packed(command: Command) -> bytes:
    """Pack plain words. redis-py's own packing also joins, splits and converts, which costs a tenth of a lock."""
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        coded = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(coded), coded))
    return b"".join(parts)


class SecureWire(Wire, SSLConnection):
    """The same over TLS."""
