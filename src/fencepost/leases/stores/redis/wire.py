"""One connection to a server with a deadline for every reply; redis-py implements the protocol.

redis-py's own client is not used: it takes as long as the round trip itself, retries in ways that are not safe here,
and applies its timeouts to each step of connecting and reading. Its `Connection` does what is needed: addresses, TLS,
credentials and parsing (with hiredis, if installed).
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
    """A connection for one exchange at a time. Set `answer_by` (monotonic) before each."""

    def __init__(self, *, clock: Callable[[], float], answer_by: float, **settings: Any) -> None:
        self.clock = clock
        self.answer_by = answer_by
        super().__init__(**settings)  # type: ignore[no-untyped-call]

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Read one reply, also one of the handshake, within the remaining time."""
        left_s = self.answer_by - self.clock()
        options["timeout"] = left_s if left_s > _SHORTEST_S else _SHORTEST_S
        return super().read_response(*arguments, **options)

    def send(self, *commands: Command) -> None:
        """Send without waiting for a reply."""
        self.send_packed_command([b"".join(map(_packed, commands))], check_health=False)  # type: ignore[no-untyped-call]

    def ask(self, command: Command) -> Any:
        """Send one command and return its reply: one round trip, unless the server does not know a script."""
        self.send_packed_command([_packed(command)], check_health=False)  # type: ignore[no-untyped-call]
        try:
            return self.read_response()
        except NoScriptError:
            return self.ask(spelled_out(command))

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands at once and return all replies: one round trip, unless scripts are unknown."""
        self.send(*commands)
        answers = [self._answer_or_error() for _ in commands]
        for number, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):  # the first retry sends the script, the others use it
                answers[number] = self.ask(commands[number])
            elif isinstance(answer, ResponseError):
                raise answer
        return answers

    def subscribe(self, channel: str) -> None:
        """Listen to `channel`, and skip remaining messages of earlier subscriptions."""
        self.send(("SUBSCRIBE", channel))
        wanted = [b"subscribe", channel.encode()]
        while self.read_response()[:2] != wanted:
            pass

    def unsubscribe(self, channel: str) -> None:
        """Stop listening, without waiting for the confirmation, which the next `subscribe` skips."""
        with suppress(RedisError):
            if self.is_connected:
                self.send(("UNSUBSCRIBE", channel))

    def hang_up(self) -> None:
        """Close the connection."""
        self.disconnect()  # type: ignore[no-untyped-call]

    def wait_for_message(self, channel: str) -> None:
        """Wait for a message until `answer_by`. If the connection breaks, return as if there was one."""
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
    """Pack plain words. redis-py's own packing also joins, splits and converts, and takes a tenth of a lock's time."""
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        coded = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(coded), coded))
    return b"".join(parts)


class SecureWire(Wire, SSLConnection):
    """The same over TLS."""
