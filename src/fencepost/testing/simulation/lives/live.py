"""One life from beginning to end: scenes, with days between them; then it is quiet, and everything is judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from fencepost.core import ticking
from fencepost.errors import InvalidSchedule
from fencepost.proof.checkers import check_all
from fencepost.proof.evidence import Violation
from fencepost.testing.simulation.hub import Hub
from fencepost.testing.simulation.lives.acts import Happenings
from fencepost.testing.simulation.lives.dues import next_due_us
from fencepost.testing.simulation.lives.jobs import LAPSES_D, Offer
from fencepost.testing.simulation.lives.observing import Observer
from fencepost.testing.simulation.lives.plan import ZONE, Scene, life
from fencepost.testing.simulation.lives.settlement import Settlement
from fencepost.testing.simulation.outcome import Patch, SeedOutcome, counted, trace_hash, uncollected, unexpected
from fencepost.testing.simulation.scenario import SimulatedFault

_LAST_GRACE_S = 5.0  # for what came due last; everything else has ended (see `_settle`)
_LEAP_S = 3.4 * 86400.0  # well below the ttl: a node that lived before a jump lives after it
_AHEAD_S = 1.0  # before something is due
_CLEAR_S = 900.0  # a scene that is not about a due time is at least so far from one
_SCENE_S = 2.2  # longer than `_AHEAD_S`, so that what is due comes due in the scene
_BUSY_S = 90.0  # a run that takes long has 20 s (`LONG_S`); what a sleeping machine runs does not end
_QUIET_DAYS = 9.0  # longer than the ttl, so that dead nodes are noticed before starts are judged
_CLOCKS_APART_S = 3600.0  # of nodes, by which keys expire on SQLite


def live(
    seed: int,
    *,
    faults: tuple[SimulatedFault, ...] | None = None,
    kinds: frozenset[str] | None = None,
    patch: Patch | None = None,
) -> SeedOutcome:
    """Simulate the life that `seed` stands for, and let the checkers judge it; see `simulate`."""
    plan = life(seed, kinds=kinds)
    if faults is not None:
        plan = replace(plan, faults=faults)
    with uncollected(), patch() if patch is not None else nullcontext():
        world = Settlement(plan)
        living = Living(world)
        living.live()
    evidence = living.observer.evidence(quiet_from=living.quiet_from, ended_at=living.ended_at)
    violations = [violation for each in evidence for violation in check_all(each)]
    counts = counted(world, evidence)
    counts["lives"] = 1
    counts["days"] = round(living.ended_at / 86400.0)
    return SeedOutcome(
        seed=seed,
        violations=(*violations, *_lapses(world), *living.happenings.restoring.seen.violations, *unexpected(world)),
        trace_hash=trace_hash(world, evidence),
        evidence=evidence[0],
        plan=plan,
        counts=counts,
        emitted=tuple(world.emitted),
    )


def _lapses(world: Settlement) -> Iterator[Violation]:
    """Look at keys that expire: new again only after their time, and then without fail."""
    stepped_s = sum(abs(act.amount) for act in world.plan.faults if act.kind == "clock step")
    kept_us = LAPSES_D * 86400 * 1_000_000
    slack_us = round((_CLOCKS_APART_S + stepped_s) * 1e6)
    for number, offers in enumerate(world.offers):
        for program in sorted({offer.program for offer in offers}):
            mine = [offer for offer in offers if offer.program == program]
            yield from _lapses_of(f"{program}, ledger {number}", mine, kept_us, slack_us)


def _lapses_of(whose: str, offers: list[Offer], kept_us: int, slack_us: int) -> Iterator[Violation]:
    last_us: int | None = None  # when it was last new for certain
    perhaps_us: int | None = None  # or may have been
    for offer in offers:
        if offer.is_certain and offer.is_new and last_us is not None and offer.at_us < last_us + kept_us - slack_us:
            yield Violation("keys that expire", f"a key ({whose}) was new again before its time was over", "")
        is_over = perhaps_us is None or offer.at_us > perhaps_us + kept_us + slack_us
        if offer.is_certain and not offer.is_new and is_over and not _met_another(offer, offers):
            yield Violation("keys that expire", f"a key ({whose}) was refused though its time was over", "")
        if offer.is_new is not False:
            perhaps_us = offer.at_us
            last_us = offer.at_us if offer.is_certain else last_us


def _met_another(offer: Offer, offers: list[Offer]) -> bool:
    """Whether another one that came meanwhile was new, or may have been: of two at once one is."""
    return any(other.is_new is not False and offer.at_us <= other.at_us <= offer.until_us for other in offers)


class Living:
    """Plays a life."""

    def __init__(self, world: Settlement) -> None:
        self.world = world
        self.hub = world.hub
        self.happenings = Happenings(world)
        self.observer = Observer(world, self.happenings)
        self.quiet_from = 0.0
        self.ended_at = 0.0

    def live(self) -> None:
        """Play all scenes, then a quiet time, and have all nodes leave."""
        plan, hub = self.world.life, self.hub
        try:
            with _old_zones(self.world):
                self._do(self.happenings.begin)
                for number, scene in enumerate(plan.scenes):
                    self._leap(scene)
                    acts = [act for act in plan.faults if act.at == number]
                    self._do(partial(self.happenings.happen, number, acts))
                    self._settle()
                self._calm_down()
            self.ended_at = hub.now
            for place in self.world.places:
                hub.spawn(self.world.world.process, "end", partial(self.world.leave, place, _LAST_GRACE_S))
            hub.run(self.ended_at + 30.0)
            self.observer.read()
        finally:
            hub.over()
            self.world.drop_all()

    def _do(self, work: Any) -> None:
        """Have something done by a task of the world, and wait for it."""
        task = self.hub.spawn(self.world.world.process, "act", work)
        give_up_at = self.hub.now + 600.0
        while not task.is_done and self.hub.now < give_up_at:
            self.hub.run(self.hub.now + 0.05)

    def _settle(self) -> None:
        """Let pass what a scene takes, and what runs."""
        self.hub.run(self.hub.now + _SCENE_S)
        give_up_at = self.hub.now + _BUSY_S
        while self._is_busy() and self.hub.now < give_up_at:
            self.hub.run(self.hub.now + 0.5)
        self.observer.look()

    def _is_busy(self) -> bool:
        world = self.world
        return any(
            world.works[place.process.name].under_way
            for place in world.places
            if place.is_up and place.process is not None and place.process.name in world.works
        )

    def _leap(self, scene: Scene) -> None:
        """Jump to the time of the next scene, unless that is now; while no process is within a transaction."""
        give_up_at = self.hub.now + 1.0
        while any(server.is_busy for server in self.world.servers.values()) and self.hub.now < give_up_at:
            self.hub.run(self.hub.now + 0.001)
        left_s = (self._next_due_us() - self.world.now_us()) / 1e6
        if left_s > _LEAP_S:
            self.hub.now += _LEAP_S * scene.share
        elif scene.is_due or left_s < 3 * _CLEAR_S:
            self.hub.now += max(left_s - _AHEAD_S, 0.0)
        else:
            self.hub.now += (left_s - 2 * _CLEAR_S) * scene.share + _CLEAR_S

    def _next_due_us(self) -> int:
        world, now_us = self.world, self.world.now_us()
        jobs = {job for place in world.places for job in world.jobs_at(place.slot) if job.is_scheduled}
        return min((next_due_us(job, now_us) for job in jobs), default=now_us + round(3 * 86400e6))

    def _calm_down(self) -> None:
        """Start all nodes again, and continue until dead nodes were noticed and all missed work is done."""
        self._do(self.happenings.end)
        until = self.hub.now + _QUIET_DAYS * 86400.0
        while self.hub.now < until:
            self._leap(Scene(True, 1.0))
            self._settle()
        self.quiet_from = self.hub.now
        self._leap(Scene(True, 1.0))
        self._settle()
        self.hub.run(self.hub.now + 20.0)


@contextmanager
def _old_zones(world: Settlement) -> Iterator[None]:
    """Let processes in some places not know a zone, as if their tzdata were older."""
    known = ticking._kind  # the one place where a schedule is read for planning
    hub: Hub = world.hub

    def kind(who: Any, spec: str, *rest: Any) -> Any:
        process = hub.current.process if hub.current is not None else None
        if ZONE in spec and any(world.places[slot].process is process for slot in world.has_old_zones):
            raise InvalidSchedule(f"there is no time zone {ZONE!r} here (simulated)")
        return known(who, spec, *rest)

    with mock.patch.object(ticking, "_kind", kind):
        yield
