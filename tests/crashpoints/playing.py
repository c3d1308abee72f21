"""Records a path, plays it for each point and way, and counts what became of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, islice
from typing import NamedTuple

from tests.crashpoints.checking import Found, found, violations
from tests.crashpoints.child import Exits
from tests.crashpoints.drivers import COMMIT, ROLLBACK, watched
from tests.crashpoints.grounds import Ground
from tests.crashpoints.path import BULK, FENCE, PATHS, Path
from tests.crashpoints.points import POINTS, Way
from tests.crashpoints.world import World, world

RECOVERED, REFUSED, REPEATED = "recovered", "refused", "repeated"
_ENDS = (COMMIT, ROLLBACK)
_CHANGES = ("INSERT ", "UPDATE ", "DELETE ")
_VALUES = re.compile(r"'(?:[^'\\]|\\.)*(?:'|$)|\b[0-9]+\b")
_REFUSALS = ("run refused", "refused write")


class Play(NamedTuple):
    """One point, one way. `is_afterwards`: the last effect of the path has been committed by then."""

    number: int
    way: Way
    label: str
    is_afterwards: bool = False


class Played(NamedTuple):
    """What became of a play."""

    play: Play
    outcome: str | None  # None: it was never reached
    violations: list[str]


Choose = Callable[[Iterable[Play]], Iterator[Play]]


@dataclass
class Tally:
    """What became of all plays of a path."""

    points: int = 0
    plays: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    unreached: list[Play] = field(default_factory=list)
    violated: list[Played] = field(default_factory=list)

    def add(self, played: Played) -> None:
        self.plays += 1
        if played.outcome is None:
            self.unreached.append(played.play)
        else:
            self.outcomes[played.outcome] += 1
        if played.violations:
            self.violated.append(played)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.points + other.points,
            self.plays + other.plays,
            self.outcomes + other.outcomes,
            self.unreached + other.unreached,
            self.violated + other.violated,
        )


@cache
def known_trips(ground: Ground, path: Path) -> tuple[str, ...]:
    """Return the round trips of a path, which several paths are compared with."""
    return recorded(ground, path)


def recorded(ground: Ground, path: Path) -> tuple[str, ...]:
    """Play a path as it is, and return its round trips.

    A slow machine has statements of its own: a fence that was found a moment ago is looked for again if that moment was
    long, a connection is asked whether it still lives. Later plays do not reach them. So a path is played twice, and
    the shorter one counts.
    """
    return min((_recorded(ground, path) for _ in range(2)), key=len)


def _recorded(ground: Ground, path: Path) -> tuple[str, ...]:
    """Play it once; it must be sound by itself."""
    ground.empty()
    with watched(), world(ground) as made:
        path.prepare(made)
        POINTS.arm()
        path.act(made)
        labels = POINTS.seen
        POINTS.disarm()
        troubles = [repr(error) for node in made.nodes for error in node.troubles]
        assert not troubles, f"{path.name} does not go well by itself: {troubles}"
        sound = judged(made, Play(0, Way.EXIT, "nothing"), has_exited=False)
        assert not sound.violations, f"{path.name} is not sound by itself: {sound.violations}"
    return labels


def _transactions(labels: tuple[str, ...]) -> Iterator[list[tuple[int, str]]]:
    """Yield the points of each transaction, and of what was asked before it, with what they say but for values."""
    points: list[tuple[int, str]] = []
    for number, label in enumerate(labels, 1):
        points.append((number, _VALUES.sub("#", label)))
        if label.upper().startswith(_ENDS) or number == len(labels):
            yield points
            points = []


def worth_cutting(ground: Ground, path: Path, labels: tuple[str, ...]) -> tuple[int, ...]:
    """Return the points of a path. Bulk work is much the same again and again: what was cut before is not once more.

    A transaction that writes is cut from its first change on, unless one with the same statements was. All that is
    before that, and those that only look, are cut at statements that were not cut yet.
    """
    if path.family != BULK:
        return tuple(range(1, len(labels) + 1))
    cut: set[str] = set()
    for name in path.beside:
        _new(known_trips(ground, PATHS[name]), cut)
    return tuple(_new(labels, cut))


def _new(labels: tuple[str, ...], known: set[str]) -> list[int]:
    """Return what was not cut yet, and note that it is now."""
    found: list[int] = []
    for points in _transactions(labels):
        whole = "; ".join(said for _, said in points)
        changes = [number for number, said in points if said.startswith(_CHANGES)]
        first = changes[0] if changes and whole not in known else len(labels) + 1
        found += [number for number, said in points if number >= first or said not in known]
        known.update((whole, *(said for _, said in points)))
    return found


def plays(ground: Ground, path: Path, labels: tuple[str, ...], points: tuple[int, ...]) -> Iterator[Play]:
    """These points, in all ways there are."""
    is_fence = path.family == FENCE
    last = max((number for number, label in enumerate(labels, 1) if is_fence and label == COMMIT), default=len(labels))
    ways = (Way.EXIT, Way.ERROR, Way.LOST, *(() if ground.kind == "sqlite" else (Way.KILLED,)))
    for number in points:
        yield from (Play(number, way, labels[number - 1], is_afterwards=number > last) for way in ways)
    yield Play(len(labels) + 1, Way.EXIT, "(all done)")


def in_turn(nth: int, *, first: int = 0) -> Choose:
    """Every so manyth point once: in one of the ways, which take turns."""

    def chosen(all_plays: Iterable[Play]) -> Iterator[Play]:
        points = (list(group) for _, group in groupby(all_plays, lambda play: play.number))
        for turn, ways in enumerate(islice(points, first % nth, None, nth), first):
            yield ways[turn % len(ways)]

    return chosen


def each_nth(nth: int, *, first: int = 0) -> Choose:
    """Every so manyth, whatever it is."""
    return lambda all_plays: islice(all_plays, first % nth, None, nth)


def tallied(ground: Ground, path: Path, exits: Exits, choose: Choose = iter) -> Tally:
    """Play all, or those that are chosen."""
    labels = known_trips(ground, path)
    points = worth_cutting(ground, path, labels)
    tally = Tally(points=len(points))
    for play in choose(plays(ground, path, labels, points)):
        ended = played(ground, path, play, exits)
        if ended.outcome is None:  # on a machine that was too busy, something else went wrong before: once more
            ended = played(ground, path, play, exits)
        tally.add(ended)
    return tally


def played(ground: Ground, path: Path, play: Play, exits: Exits) -> Played:
    """Play a path that is cut, let others put things in order, and look."""
    ground.empty()
    if play.way is Way.EXIT:
        if not exits.play(ground, path.name, play.number):
            return Played(play, None, [])
        with world(ground) as made:
            return judged(made, play, has_exited=True)
    with watched(), world(ground) as made:
        path.prepare(made)
        POINTS.arm(play.number, play.way)
        path.act(made)
        was_reached = POINTS.was_reached
        POINTS.disarm()
        ended = judged(made, play, has_exited=False)
        return ended if was_reached else ended._replace(outcome=None)


def judged(made: World, play: Play, *, has_exited: bool) -> Played:
    """Let everybody put things in order, and look."""
    is_settled = made.recover(has_exited=has_exited)
    seen = found(made)
    broken = violations(made, seen)
    if not is_settled:
        broken.insert(0, f"stuck: {stuck(made, seen)}")
    outcome = _outcome(seen)
    if play.is_afterwards and not has_exited and outcome != RECOVERED:
        broken.append(f"afterwards: its work was done and committed, and yet it was {outcome}")
    return Played(play, outcome, broken)


def stuck(made: World, seen: Found) -> str:
    """Say what is left to be done."""
    nodes = made.rows("SELECT n.name, n.dead_at, n.left_at FROM {node} n")
    keys = made.rows("SELECT x.key, x.run_id FROM {exclusive} x WHERE x.run_id IS NOT NULL")
    return f"runs {[run[:3] for run in seen.runs]}, nodes {nodes}, keys {keys}"


def _outcome(seen: Found) -> str:
    if any(seen.journal[what] for what in _REFUSALS):
        return REFUSED
    return REPEATED if any(len(rows) > 1 for rows in seen.attempts.values()) else RECOVERED
