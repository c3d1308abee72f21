"""A fence on Redis or Valkey: the check and the writes are one script, so nothing comes between them.

::

    fence = RedisFence(client, "fence:{stock}")
    fence.execute(run, "SET", "stock:42", 7)              # one command
    with fence.pipeline(run) as pipe:                     # several: all or none
        pipe.set("stock:42", 7).zincrby("sold", 1, "42")
        answers = pipe.execute()

**Promises.** The high-water mark is a hash under the fence's key. A stale writer gets `LeaseLost`, and nothing of what
it sent is applied. Several commands are applied together or not at all: a server knows no rollback, so the script
first looks whether each command exists and is complete, remembers what is under its keys, and puts that back if one of
them fails (a wrong type, say). Mark and writes go to replicas and to the append-only file together: a server that
forgets the mark has forgotten what it guarded as well.

**Why a script** and not WATCH and MULTI: a WATCH belongs to a connection, and clients that find theirs broken, as that
of a process which slept, may open another and send the transaction without it. Nothing here hangs on a connection.

**Not promised.** That a command whose reply was lost did not happen; a client that is set to try again then does it
twice (redis-py does so by itself, three times). Use commands that may be repeated (SET, HSET, ZADD), or a client with
``retry=Retry(NoBackoff(), 0)``. Several commands cost a copy of every value they touch while they run; for large ones,
``pipeline(run, take_back=False)`` does without, and a command that fails then leaves those before it. Answers are those
of a script, numbers, texts and lists, without redis-py's conversions.

**On Redis Cluster** everything must lie in one slot: the fence's key and all others share a hash tag, as in
``fence:{stock}`` and ``{stock}:42``. Otherwise it is refused before anything is sent.
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
    """The fence of whatever is written through it. Any number of threads may use one.

    Args:
        client: a client of redis-py or valkey-py, also one of a cluster or from Sentinel; not an async one.
        key: where the mark is kept; one for each thing that one holder at a time may write.
        expire: how long after it was last raised the mark is forgotten, and an old token let in again; by itself never.
    """

    def __init__(self, client: Any, key: str, *, expire: Duration | None = None) -> None:
        self._library = _library_of(client)
        self._client = client
        self.key = key
        self._expire_ms = 0 if expire is None else max(round(seconds(expire, what="expire") * 1000), 1)

    def execute(self, claimant: Claimant, *command: Any) -> Any:
        """Check, and execute one command, in one step on the server; return its answer."""
        return self._apply(claimant, [_words(command)], take_back=False)[0]

    def check(self, claimant: Claimant) -> None:
        """Raise the mark, and write nothing else: from now on, whoever held it before is refused."""
        self._apply(claimant, [], take_back=False)

    def pipeline(self, claimant: Claimant, *, take_back: bool = True) -> Any:
        """Return a pipeline with the client's own methods; its commands wait for `execute`, and are applied together.

        With ``take_back=False`` a command that fails leaves those before it in place.
        """
        kind = _pipeline_of(self._library)
        return kind(self, fencing_of(claimant), take_back)

    def mark(self) -> Mark | None:
        """Return the mark as it stands, or None if nobody has written yet."""
        token, grant_id, holder = map(_text, self._client.hmget(self.key, "token", "grant_id", "holder"))
        return Mark(int(token), grant_id, holder) if token else None

    def apply(self, claimant: Claimant, commands: Sequence[Command], *, take_back: bool) -> list[Any]:
        """Check, and apply all of `commands`, in one step. For the pipeline."""
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
                    f"{_text(command[0])} {_text(command[1]) if len(command) > 1 else ''} lies in another slot of the "
                    f"cluster than fence {self.key!r}, so one script cannot do both; give the fence and all keys "
                    "behind it one hash tag, as in fence:{stock} and {stock}:42"
                )


class FencedPipeline:
    """Commands that wait for `execute`. Leaving the context forgets those that were not executed."""

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
        """Check, and apply what was queued, all or nothing; return the answers. `LeaseLost` if the token is stale."""
        commands, self._commands = self._commands, []
        return self._fence.apply(self._offered, commands, take_back=self._take_back)


@cache
def _pipeline_of(library: ModuleType) -> type[FencedPipeline]:
    """Give the pipeline the methods of the client's own library: each of them ends in `execute_command`."""
    commands = importlib.import_module(f"{library.__name__}.commands").CoreCommands
    return type("FencedPipeline", (FencedPipeline, commands), {})


def _library_of(client: Any) -> ModuleType:
    modules = [kind.__module__ for kind in type(client).__mro__]
    name = next((module.partition(".")[0] for module in modules if module.partition(".")[0] in _CLIENTS), None)
    if name is None:
        raise TypeError(f"a fence takes a client of redis-py or valkey-py, not a {modules[0]}.{type(client).__name__}")
    if any(".asyncio" in module for module in modules):
        raise TypeError(
            "the client is an async one, and a fence takes a plain one; make one from the same URL, and call the fence "
            "in a thread (asyncio.to_thread)"
        )
    importlib.import_module(f"{name}.exceptions")
    return importlib.import_module(name)


def _words(command: Command) -> Command:
    """Return a command word by word: redis-py writes some as one, such as ``OBJECT ENCODING``."""
    if not command:
        raise ValueError("there is no command without a name")
    return (*command[0].split(), *command[1:]) if isinstance(command[0], str) else command


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else "" if value is None else str(value)
