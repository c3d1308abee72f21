"""What a bulk job consists of: its steps, each with a reader, a `process` for one item and a `write` for a chunk.

``@app.bulk`` makes it from a class or a function. Everything that can be checked before it runs is checked here.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from fencepost.bulk.reader import Reader
from fencepost.bulk.unfinished import is_async, refuse_deferred
from fencepost.core.nearest import suggestion
from fencepost.core.retry import Backoff
from fencepost.core.sizing import Sizing
from fencepost.core.words import OverWord
from fencepost.errors import InvalidBulk

if TYPE_CHECKING:
    from sqlalchemy import Engine

    Database = Engine | str | Callable[[], Engine]

MOST_PARTITIONS = 10_000  # each has a checkpoint row, and all slices are in one plan row
THREADS: OverWord = "threads"


@dataclass(frozen=True, slots=True)
class Options:
    """How the items of a step are handled. Build it with `Options.of`, which validates."""

    sizing: Sizing
    partitions: int = 1
    given: tuple[Mapping[str, Any], ...] = ()  # the values of each partition, if partitions= is a list
    over: OverWord = "nodes"
    skip_limit: int = 0
    retry_limit: int = 3
    backoff: Backoff = field(default_factory=lambda: Backoff.of("1s..1m"))
    crash_limit: int = 3
    read_ahead: int = 1
    concurrency: int = 1
    source: Any = None
    target: Any = None

    @staticmethod
    def of(*, chunk: int, words: Mapping[str, Any]) -> Options:
        """Build the options from what the user wrote. Raise `InvalidBulk`, with the reason, if they are not valid."""
        for name in words:
            if name not in OPTIONS:
                raise InvalidBulk(f"a bulk job has no option {name!r}; {suggestion(name, OPTIONS)}")
        given = words.get("partitions", 1)
        counted = isinstance(given, int) and not isinstance(given, bool)
        values: tuple[Mapping[str, Any], ...] = () if counted else _given_partitions(given)
        over = words.get("over", "nodes")
        if over not in get_args(OverWord):
            raise InvalidBulk(f"over {over!r} must be 'nodes' (each partition is a run) or {THREADS!r}")
        return Options(
            sizing=Sizing.of(
                chunk=chunk,
                chunk_bytes=words.get("chunk_bytes"),
                chunk_time=words.get("chunk_time"),
                memory=words.get("memory"),
            ),
            partitions=_whole("partitions", given, 1, MOST_PARTITIONS) if counted else len(values),
            given=values,
            over=over,
            skip_limit=_whole("skip_limit", words.get("skip_limit", 0), 0, 10**9),
            retry_limit=_whole("retry_limit", words.get("retry_limit", 3), 0, 1000),
            backoff=Backoff.of(words.get("retry_backoff", "1s..1m")),
            crash_limit=_whole("crash_limit", words.get("crash_limit", 3), 1, 1000),
            read_ahead=_whole("read_ahead", words.get("read_ahead", 1), 0, 64),
            concurrency=_whole("concurrency", words.get("concurrency", 16), 1, 10_000),
            source=words.get("source", words.get("target")),
            target=words.get("target"),
        )


OPTIONS = (
    *("partitions", "over", "skip_limit", "retry_limit", "retry_backoff", "crash_limit", "read_ahead", "concurrency"),
    *("chunk_bytes", "chunk_time", "memory", "source", "target"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: items from a reader through `process` to `write`; or, with `work`, a function that is called once.

    `process` takes an item and returns what to write, or None to leave the item out. `write` takes the chunk's
    transaction and the list of things to write.
    """

    name: str
    options: Options
    read: Reader | None = None
    process: Callable[[Any], Any] | None = None
    write: Callable[[Any, Sequence[Any]], Any] | None = None
    work: Callable[..., Any] | None = None
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None

    @property
    def is_async(self) -> bool:
        """Whether `process` is a coroutine function."""
        return is_async(self.process)

    def check(self, job: str, *, is_outline: bool = False) -> None:
        """Refuse an incomplete or contradictory step. Of an outline, only the parts that it has are checked."""
        what = f"bulk job {job!r}, step {self.name!r}"
        refuse_deferred(what, work=self.work, before=self.before, after=self.after)
        if self.work is not None:
            if self.read is not None or self.write is not None:
                raise InvalidBulk(f"{what}: a step with work() must have neither read nor write")
            return
        if is_outline and (self.read is None or self.write is None or isinstance(self.read, property)):
            return
        if self.read is None:
            raise InvalidBulk(f"{what}: it has nothing to read; give it read = keyset(…), or another reader")
        if not hasattr(self.read, "open") or not hasattr(self.read, "shape"):
            raise InvalidBulk(
                f"{what}: {self.read!r} is not a reader; use keyset(…), id_range(…), csv_file(…) or another one"
            )
        if self.write is None or not callable(self.write):
            raise InvalidBulk(f"{what}: it has no write; give it write(self, tx, items), or writer=copy(…)")
        refuse_deferred(what, may_be_async="process", process=self.process, write=self.write)
        self._check_given(what, self.read)

    def _check_given(self, what: str, read: Reader) -> None:
        """Refuse partitions whose values the reader does not use: each of them would read everything."""
        names = {str(name) for each in self.options.given for name in each}
        unknown = sorted(names - _asked_by(read)) if names else []
        if unknown:
            raise InvalidBulk(
                f"{what}: the partitions have values for {', '.join(unknown)}, which {read!r} does not use, so each "
                f"partition would read everything; use it there, as in WHERE {unknown[0]} = :{unknown[0]}"
            )


Made = Callable[[], "Bulk"]


@dataclass(frozen=True, slots=True)
class Bulk:
    """A bulk job, as one attempt uses it. `decide` returns the name of the next step, or None to end the job."""

    job: str
    steps: tuple[Step, ...]
    decide: Callable[..., Any] | None = None
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None

    def step(self, name: str) -> Step:
        for each in self.steps:
            if each.name == name:
                return each
        raise InvalidBulk(
            f"bulk job {self.job!r} has no step {name!r}; {suggestion(str(name), [s.name for s in self.steps])}"
        )

    def check(self, *, is_outline: bool = False) -> None:
        """Refuse an invalid definition. An outline may lack parts that the object gets when it is created."""
        names = [each.name for each in self.steps]
        if not names:
            raise InvalidBulk(f"bulk job {self.job!r} has no step")
        if len(set(names)) != len(names):
            raise InvalidBulk(f"bulk job {self.job!r} has two steps with the same name: {', '.join(names)}")
        refuse_deferred(f"bulk job {self.job!r}", decide=self.decide, before=self.before, after=self.after)
        for each in self.steps:
            each.check(self.job, is_outline=is_outline)


def _asked_by(read: Any) -> set[str]:
    """Return the names of the values that a reader uses in its query, or takes as parameters of its function."""
    if hasattr(read, "pages"):
        return set(read.pages.names)
    return set(inspect.signature(read.function).parameters) if hasattr(read, "function") else set()


def _given_partitions(given: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(given, list | tuple) or not given or not all(isinstance(each, Mapping) for each in given):
        raise InvalidBulk(
            f"partitions {given!r} must be a number, or a list with values for the query's parameters, as in "
            '[{"region": "eu"}, {"region": "us"}]'
        )
    if len(given) > MOST_PARTITIONS:
        raise InvalidBulk(f"{len(given)} partitions are more than {MOST_PARTITIONS}")
    if not given[0] or any(set(each) != set(given[0]) for each in given):
        raise InvalidBulk(f"partitions {given!r:.200} must all have values for the same names, and for at least one")
    counts = Counter(repr(sorted(each.items())) for each in given)
    if len(counts) != len(given):
        raise InvalidBulk(
            f"partitions contain {counts.most_common(1)[0][0]:.200} twice, so its items would land twice; list it once"
        )
    return tuple(given)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidBulk(f"{name} {value!r} must be a whole number from {least} to {most}")
    return value
