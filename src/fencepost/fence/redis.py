"""A fence on Redis or Valkey. The check and the writes are one script, so nothing happens between them.

::

    fence = RedisFence(client, "fence:{stock}")
    fence.execute(run, "SET", "stock:42", 7)              # one command
    with fence.pipeline(run) as pipe:                     # several: all or none
        pipe.set("stock:42", 7).zincrby("sold", 1, "42")
        answers = pipe.execute()

**Promises.** The high-water mark is a hash under the fence's key. A stale writer gets `LeaseLost`, and none of its
commands are applied. Several commands are applied together or not at all. The server has no rollback, so the script
first checks that each command exists and is complete and saves the values of its keys. If a command fails, for example
because of a wrong type, the script restores them. Mark and writes reach replicas and the append-only file together. So
a server that loses the mark has also lost the writes that it guarded.

**Why a script** and not WATCH and MULTI: a WATCH belongs to a connection. A client whose connection broke, for example
because the process was paused, may open another one and send the transaction without the WATCH. A script does not
depend on a connection.

**Not promised.** That a command whose reply was lost was not applied. A client that retries then applies it twice, and
redis-py retries three times by default. Use commands that may be repeated (SET, HSET, ZADD), or a client with
``retry=Retry(NoBackoff(), 0)``. Several commands copy every value that they touch while they run. For large values,
``pipeline(run, take_back=False)`` avoids the copies; if a command fails, those before it then stay applied. Replies are
those of a script (numbers, strings and lists), without redis-py's conversions.

**On Redis Cluster** all keys must be in one slot: the fence's key and all others need the same hash tag, as in
``fence:{stock}`` and ``{stock}:42``. Otherwise the call is refused before anything is sent.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from types import ModuleType, TracebackType
from typing import Any, Self

from fencepost.core.duration import Duration, seconds
from fencepost.core.fencing import AHEAD_US, NOTHING_WRITTEN, Claimant, FencingToken, Mark, fencing_of, refusal
from fencepost.errors import LeaseLost

_CLIENTS = ("redis", "valkey")
_GUARD = (files(__package__) / "lua" / "guard.lua").read_text(encoding="utf-8")
_DIGEST = hashlib.sha1(_GUARD.encode(), usedforsecurity=False).hexdigest()

Command = tuple[Any, ...]


class RedisFence:
    """A fence for commands on Redis or Valkey. Any number of threads may share one.

    Args:
        client: a client of redis-py or valkey-py, also for a cluster or from Sentinel; not an async client.
        key: the key of the mark. Use one for each resource that one holder at a time may write.
        expire: how long after it was last raised the mark expires. An old token is then accepted again. By default the
            mark never expires.
    """

    def __init__(self, client: Any, key: str, *, expire: Duration | None = None) -> None:
        self._library = _library_of(client)
        self._client = client
        self.key = key
        self._expire_ms = 0 if expire is None else max(round(seconds(expire, what="expire") * 1000), 1)

    def execute(self, claimant: Claimant, *command: Any) -> Any:
        """Check the token and execute one command, atomically on the server; return the reply."""
        return self._apply(claimant, [_words(command)], take_back=False)[0]

    def check(self, claimant: Claimant) -> None:
        """Raise the mark and write nothing else. From now on, every earlier holder is refused."""
        self._apply(claimant, [], take_back=False)

    def pipeline(self, claimant: Claimant, *, take_back: bool = True) -> Any:
        """Return a pipeline with the client's own methods. It queues commands, and `execute` applies them together.

        With ``take_back=False``, if a command fails, the commands before it stay applied.
        """
        kind = _pipeline_of(self._library)
        return kind(self, fencing_of(claimant), take_back)

    def mark(self) -> Mark | None:
        """Return the current mark, or None if no holder has written yet."""
        token, grant_id, holder = map(_text, self._client.hmget(self.key, "token", "grant_id", "holder"))
        return Mark(int(token), grant_id, holder) if token else None

    def apply(self, claimant: Claimant, commands: Sequence[Command], *, take_back: bool) -> list[Any]:
        """Check the token and apply all of `commands`, atomically. Used by the pipeline."""
        return self._apply(claimant, [_words(command) for command in commands], take_back=take_back)

    def _apply(self, claimant: Claimant, commands: Sequence[Command], *, take_back: bool) -> list[Any]:
        offered = fencing_of(claimant)
        self._refuse_other_slots(commands)
        terms = (offered.token, offered.grant_id, offered.holder, self._expire_ms, AHEAD_US, int(take_back))
        words = [word for command in commands for word in (len(command), *command)]
        return self._judged(offered, commands, self._call(*terms, *words))

    def _call(self, *arguments: Any) -> list[Any]:
        try:
            return list(self._client.evalsha(_DIGEST, 1, self.key, *arguments))
        except self._library.exceptions.NoScriptError:  # the server is new, was restarted, or its cache was flushed
            return list(self._client.eval(_GUARD, 1, self.key, *arguments))

    def _judged(self, offered: FencingToken, commands: Sequence[Command], answer: list[Any]) -> list[Any]:
        match _text(answer[0]):
            case "done":
                return list(answer[1])
            case "stale":
                mark = Mark(int(answer[1]), _text(answer[2]), _text(answer[3]))
                raise self._lost(offered, refusal(mark, offered, now_us=None))
            case "ahead":
                raise self._lost(offered, refusal(None, offered, now_us=int(answer[1])))
        number, error = int(answer[1]), _text(answer[2])
        raise self._library.exceptions.ResponseError(self._failure(number, commands[number - 1], error, len(commands)))

    def _lost(self, offered: FencingToken, why: str | None) -> LeaseLost:
        return LeaseLost(offered.key, offered.token, f"fence {self.key!r}: {why}; {NOTHING_WRITTEN}")

    def _failure(self, number: int, command: Command, error: str, count: int) -> str:
        which = f"command {number} of {count} ({_text(command[0])})" if count > 1 else _text(command[0])
        return f"{which} behind fence {self.key!r} failed: {error}"

    def _refuse_other_slots(self, commands: Sequence[Command]) -> None:
        if not hasattr(self._client, "keyslot"):
            return
        slot = self._client.keyslot(self.key)
        for command in commands:
            try:
                is_there = self._client.determine_slot(*command) == slot
            except self._library.exceptions.RedisClusterException:
                is_there = False
            if not is_there:
                raise ValueError(
                    f"{_text(command[0])} {_text(command[1]) if len(command) > 1 else ''} is in another slot of the "
                    f"cluster than fence {self.key!r}, so one script cannot use both; give the fence and all keys "
                    "behind it the same hash tag, as in fence:{stock} and {stock}:42"
                )


class FencedPipeline:
    """Queues commands until `execute`. Leaving the context discards those that were not executed."""

    def __init__(self, fence: RedisFence, offered: FencingToken, take_back: bool) -> None:
        self._fence = fence
        self._offered = offered
        self._take_back = take_back
        self._commands: list[Command] = []

    def __len__(self) -> int:
        return len(self._commands)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._commands = []

    def execute_command(self, *command: Any, **options: Any) -> Self:
        """Queue one command."""
        self._commands.append(command)
        return self

    def execute(self) -> list[Any]:
        """Check the token and apply the queued commands; return the replies. `LeaseLost` if the token is stale."""
        commands, self._commands = self._commands, []
        return self._fence.apply(self._offered, commands, take_back=self._take_back)


@cache
def _pipeline_of(library: ModuleType) -> type[FencedPipeline]:
    """Give the pipeline the methods of the client's own library, all of which call `execute_command`."""
    commands = importlib.import_module(f"{library.__name__}.commands").CoreCommands
    return type("FencedPipeline", (FencedPipeline, commands), {})


def _library_of(client: Any) -> ModuleType:
    modules = [kind.__module__ for kind in type(client).__mro__]
    name = next((module.partition(".")[0] for module in modules if module.partition(".")[0] in _CLIENTS), None)
    if name is None:
        raise TypeError(f"a fence takes a client of redis-py or valkey-py, not a {modules[0]}.{type(client).__name__}")
    if any(".asyncio" in module for module in modules):
        raise TypeError(
            "this is an async client, and a fence needs a synchronous one; create one with the same URL, and call the "
            "fence in a thread (asyncio.to_thread)"
        )
    importlib.import_module(f"{name}.exceptions")
    return importlib.import_module(name)


def _words(command: Command) -> Command:
    """Split the command's name into words: redis-py sends some as one string, such as ``OBJECT ENCODING``."""
    if not command:
        raise ValueError("a command needs a name")
    return (*command[0].split(), *command[1:]) if isinstance(command[0], str) else command


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else "" if value is None else str(value)
