"""Playing a story, asking *why* of every due time that it had, and comparing the answers with the oracle's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fencepost.app.records.runs import WhyRecord
from fencepost.core.tick import instant
from fencepost.ledger.pruning import Retention
from tests.why.clocks import ledger_with_set_clock
from tests.why.dues import MINUTE_US, dues
from tests.why.oracle import Fate, Oracle
from tests.why.story import DAY_US, STRETCHES, Lane, told
from tests.why.world import World

_KEPT_D = 60


@dataclass
class Asked:
    """How many questions there were, what the answers were, and which were wrong."""

    past: int = 0
    words: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, asked: WhyRecord, fate: Fate, where: str) -> None:
        self.past += 1
        self.words[str(asked.became)] += 1
        ticks = asked.run.ticks if asked.run is not None else 1
        if str(asked.became) != fate.became or fate.says not in asked.sentence or ticks < fate.together:
            self.wrong.append(f"{where}: {fate} expected, {asked.became}: {asked.sentence}")


def played(url: str, seed: int, lanes: int = 12) -> Asked:
    """Play the story of a seed on the ledger at `url`, whose tables are empty."""
    story, asked = told(seed, lanes), Asked()
    with ledger_with_set_clock(url) as (ledger, clock):
        world = World(ledger, clock, story)
        try:
            world.begin()
            for number, (_, end_us) in enumerate(STRETCHES):
                world.play(end_us + MINUTE_US * (-1 if number == 0 else 1))
                for lane in story.lanes:
                    _ask(world, lane, asked, after_us=STRETCHES[number][0])
            world.prune(
                Retention.of(**dict.fromkeys(("succeeded", "dead", "cancelled", "skipped", "misfired"), f"{_KEPT_D}d"))
            )
            for lane in story.lanes:
                _ask(world, lane, asked, after_us=0, pruned_us=world.now_us - _KEPT_D * DAY_US)
            _ask_when_nobody_lives(world, asked)
        finally:
            world.close()
    return asked


def _ask(world: World, lane: Lane, asked: Asked, *, after_us: int, pruned_us: int = 0) -> None:
    oracle, now_us = Oracle(world.story), world.now_us
    form = lane.form_at(now_us)
    for due_us, fate in oracle.fates(lane, now_us).items():
        expected = fate
        if due_us <= after_us:
            continue
        if fate.ended_us is not None and fate.ended_us < pruned_us:
            made_us = next(act.at_us for act in reversed(lane.acts) if act.what == "make" and act.at_us < now_us)
            if form is None or due_us not in dues(form, due_us - 1, due_us) or due_us <= made_us:
                continue  # the schedule was another one then, and no record of it is left
            expected = Fate("forgotten", "no record")
        [answer] = world.operations.why(lane.id, instant(due_us))
        asked.note(answer, expected, f"{lane.id} at {instant(due_us)}, asked at {instant(now_us)}")
    for due_us in oracle.not_there(lane, now_us):
        if due_us > after_us - 3 * DAY_US:
            [answer] = world.operations.why(lane.id, instant(due_us))
            asked.note(answer, Fate("before its time", "the schedule was"), f"{lane.id} at {instant(due_us)}")


def _ask_when_nobody_lives(world: World, asked: Asked) -> None:
    """All nodes leave, and a day later the question is why nothing ran."""
    left_us = world.now_us
    world.down(others_live=False)
    world.play(left_us + DAY_US)
    for lane in world.story.lanes:
        form = lane.form_at(world.now_us)
        for due_us in () if form is None else dues(form, left_us, world.now_us):
            is_paused = Oracle(world.story).pause_at(lane, due_us) is not None
            fate = Fate("paused", "by ann") if is_paused else Fate("no node", "no living node")
            [answer] = world.operations.why(lane.id, instant(due_us))
            asked.note(answer, fate, f"{lane.id} at {instant(due_us)}, when nobody lived")
