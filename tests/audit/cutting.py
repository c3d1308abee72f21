"""Every act is cut before and after every statement: afterwards nothing of it stands without an entry in the audit.

Whether an act was done is seen in the databases themselves: any row but those of the audit is another one. The rules:

1. What has changed, in the ledger or elsewhere, has an entry.
2. An act of one transaction has its entry or not, together with everything that it does: never one without the other.
3. An act of several transactions has an entry ``begun`` before the first of them, or its own entry before what it does
   in another database. So an entry may stand there alone, but no change does.
4. Without a cut, the act changes something, and has an entry with the outcome ``done``. Else the play shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fencepost.errors import FencepostError
from fencepost.ledger.auditing import DONE
from tests.access.scene import Target
from tests.audit.acts import ACTS, Act
from tests.audit.rows import Content, Entry
from tests.audit.stages import Stage, Stages
from tests.crashpoints.drivers import COMMIT
from tests.crashpoints.points import POINTS, Points, Way

WAYS = (Way.ERROR, Way.LOST)
_MOST_POINTS = 1000
_SAYS_SO = {"journal"}  # a line of the journal comes with its entry: it is not what the act is there for
Point = tuple[int, Way]


class Vacuous(AssertionError):
    """An act does nothing where nothing cuts it, so that cutting it shows nothing."""


@dataclass
class Cuts:
    """What came of the cuts. `first`: an entry says that the act was begun, and nothing of it was done yet."""

    plays: int = 0
    both: int = 0
    neither: int = 0
    first: int = 0
    wrong: list[str] = field(default_factory=list)
    said: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        counts = (f"{self.plays} cuts", f"{self.both} both", f"{self.neither} neither", f"{self.first} entry first")
        return ", ".join((*counts, f"{len(self.wrong)} wrong"))

    def __iadd__(self, other: Cuts) -> Cuts:
        self.plays += other.plays
        self.both += other.both
        self.neither += other.neither
        self.first += other.first
        self.wrong += other.wrong
        self.said |= other.said
        return self


@dataclass(frozen=True)
class _Played:
    """How a play has left the databases. `error` is what the person was answered, if it failed."""

    before: Content
    after: Content
    error: BaseException | None
    labels: Sequence[str]
    was_reached: bool

    @property
    def changed(self) -> set[str]:
        return self.after.changed(self.before)

    @property
    def new(self) -> list[Entry]:
        """The entries that this play has added."""
        last = max((each.n for each in self.before.entries), default=0)
        return [each for each in self.after.entries if each.n > last]


def few(labels: Sequence[str]) -> Iterator[Point]:
    """Choose where it is decided: the first two COMMITs, the last and one in between, either way; and a statement.

    The first one may be that of a look which notes something for itself; then the second one begins the act.
    """
    commits = [number for number, label in enumerate(labels, 1) if label == COMMIT]
    last = len(commits) - 1
    some = {commits[each] for each in (0, min(1, last), last * 2 // 3, last)}
    yield from ((number, way) for number in sorted(some) for way in WAYS)
    yield (commits[0] + 1) // 2, Way.ERROR


@contextmanager
def cut_at(number: int, way: Way) -> Iterator[Points]:
    """Cut what this thread does in the block."""
    POINTS.arm(number, way, is_alone=True)
    try:
        yield POINTS
    finally:
        POINTS.disarm()


def cut(name: str, stages: Stages, points: Callable[[Sequence[str]], Iterable[Point]] | None = None) -> Cuts:
    """Cut an act before and after each of its statements, or at `points` of them."""
    return cut_act(ACTS[name], stages, points, name=name)


def cut_act(
    act: Act, stages: Stages, points: Callable[[Sequence[str]], Iterable[Point]] | None = None, *, name: str
) -> Cuts:
    """Cut an act that is called `name`."""
    stage = act.stage(stages)
    stage.put_back(stage.first)
    with act.in_small():
        target = act.ready(stage)
        playing = _Playing(name, act, stage, target, stage.databases.read())
        whole = playing.play()
        _refuse_vacuous(name, act, whole)
        playing.found.said = {each.act for each in whole.new}
        if points is None:
            playing.cut_all()
        else:
            for point in points(playing.play().labels):  # the first one may have made what the others find
                if not playing.cut(*point):
                    playing.found.wrong.append(f"{name}: statement {point[0]} was not reached")
    return playing.found


class _Playing:
    """An act on its stage, where all rows are put back before each play."""

    def __init__(self, name: str, act: Act, stage: Stage, target: Target, before: Content) -> None:
        self.found = Cuts()
        self._name, self._act, self._stage, self._target, self._before = name, act, stage, target, before

    def cut_all(self) -> None:
        for way in WAYS:
            number = 1
            while self.cut(number, way):
                number += 1
                if number > _MOST_POINTS:
                    self.found.wrong.append(f"{self._name}: it has no end")
                    break

    def cut(self, number: int, way: Way) -> bool:
        """Cut it once; return whether it had such a statement."""
        played = self.play(number, way)
        is_done, has_entry = bool(played.changed - _SAYS_SO), bool(played.new)
        self.found.plays += 1
        self.found.both += is_done and has_entry
        self.found.neither += not is_done and not has_entry
        self.found.first += has_entry and not is_done
        where = f"{self._name} cut at statement {number} ({way.value})"
        self.found.wrong += [f"{where}: {each} ({played.error})" for each in _objections(self._act, played)]
        return played.was_reached

    def play(self, number: int | None = None, way: Way | None = None) -> _Played:
        """Play it, cut at a statement or whole, and put back what it has changed."""
        root, error = self._stage.root(), None
        self._stage.forget()
        POINTS.arm(number, way, is_alone=True)  # sessions of locks are renewed beside it
        try:
            self._act.call(root, self._target)
        except Exception as raised:  # noqa: BLE001 - `_objections` says which may be
            error = raised
        was_reached, labels = POINTS.was_reached, POINTS.seen
        POINTS.disarm()
        after = self._stage.databases.read()
        if after.rows != self._before.rows:
            self._stage.put_back(self._before, after)
        return _Played(self._before, after, error, labels, was_reached)


def _objections(act: Act, played: _Played) -> Iterator[str]:
    """Yield what is wrong with how a play has ended."""
    changed, said = played.changed, {each.outcome for each in played.new}
    if played.error is not None and not isinstance(played.error, FencepostError):
        yield f"it ended with {type(played.error).__name__}"
    if changed and not said:
        yield f"it was done, and has no entry: {', '.join(sorted(changed))}"
    if DONE in said and not (changed - _SAYS_SO or act.entry_first):
        yield "it has an entry, and was not done"
    if said - {DONE} and not act.in_steps:
        yield f"its entry says {', '.join(sorted(said - {DONE}))}"
    if not played.was_reached and played.error is not None:
        yield "it failed without a cut"


def _refuse_vacuous(name: str, act: Act, whole: _Played) -> None:
    """Raise unless the act does something without a cut, and has its entry."""
    problems = list(_objections(act, whole))
    if not whole.changed - _SAYS_SO:
        problems.append("it changes nothing")
    if not whole.new or whole.new[-1].outcome != DONE:
        problems.append("it has no entry that says that it is done")
    if problems:
        raise Vacuous(f"{name} is not done where nothing cuts it: {'; '.join(problems)} ({whole.error})")
