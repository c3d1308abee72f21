"""The exchange: what ended goes to the ledger, what is due comes from it, both in batches.

One step collects outcomes from the runners, finishes them, and claims as much as there is room for; the next claim
is on its way while the last batch executes. Nothing that ended is forgotten before the ledger has answered: after
an outage the endings are still here, and since a finish compares (run, attempt, token) it is believed only if
nobody took the run over in the meantime.

**Unknown outcomes.** A finish that was not answered is repeated; the ledger knows its own. A claim that was not
answered may have left runs in this node's name that nobody executes: before the next claim they are looked up by
identity and handed back.

**When it sleeps.** An idle node asks one small question per poll (`look`) and sleeps until the next due time; hints
wake it sooner. It claims without asking only where it has reason to believe that there is something: a full batch
before, a due time that has come, an outcome that may have freed a key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, Ending, StopReason
from fencepost.core.runtime import Runtime
from fencepost.core.states import RunState
from fencepost.engine.burial import Burial
from fencepost.engine.endings import Endings
from fencepost.engine.gate import Gate
from fencepost.engine.ledger_clock import LedgerClock
from fencepost.engine.membership import Member, Membership
from fencepost.engine.runners.runner import Runner
from fencepost.errors import LedgerUnavailable
from fencepost.ledger.claiming import Claimed, claim, keys_wanted, mine
from fencepost.ledger.finishing import finish
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import Look, cancels, look
from fencepost.ledger.misfiring import misfire_late

_LARGEST_BATCH = 500
# While this many claims are in hand, a few free places are not worth a transaction of their own just yet.
_PLENTY = 64
_FEW = 32
_HOLD_OFF_S = 0.02
_FIRST_RECHECK_S = 0.05
_QUEUED = str(RunState.QUEUED)


@dataclass(frozen=True, slots=True)
class Station:
    """A runner and the jobs it executes on this node."""

    runner: Runner
    jobs: tuple[str, ...]


class Exchange:
    """The step between the ledger and the runners."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        membership: Membership,
        stations: Sequence[Station],
        endings: Endings,
        burial: Burial,
        clock: LedgerClock,
        runtime: Runtime,
        queues: Sequence[str],
        poll_s: float,
        emit: Callable[[Event], None],
        on_look: Callable[[Look], None],
        on_waiting: Callable[[int], None],
        gate: Gate | None = None,
    ) -> None:
        self._desk = ledger.desk("exchange")
        self._burial = burial
        self._membership = membership
        self._stations = stations
        self._endings = endings
        self._clock = clock
        self._runtime = runtime
        self._queues = tuple(queues)
        self._poll_s = poll_s
        self._emit = emit
        self._on_look = on_look
        self._on_waiting = on_waiting
        self._gate = gate
        self._in_hand: dict[int, Claim] = {}
        self._ended: deque[Ending] = deque()
        self._again_us: list[int] = []
        self._expects_work = True
        self._is_unsure = False
        self._is_draining = False
        self._is_hinted = False
        self._look_at = float("-inf")
        self._next_at = float("inf")
        self._recheck_s = _FIRST_RECHECK_S
        self._has_held_off = False
        self._former: list[str] = []
        self._known_as: str | None = None

    # -- what others tell it ---------------------------------------------------------------------------------------

    def hint(self) -> None:
        """Something may have changed in the ledger."""
        self._is_hinted = True

    def drain(self) -> None:
        """Claim nothing more."""
        self._is_draining = True

    def lost(self, member: Member) -> None:
        """Note an identity of this process that is no more: what it left behind is to be given up."""
        self._former.append(member.node_id)

    @property
    def is_empty(self) -> bool:
        """Whether everything claimed has ended, and the ledger knows."""
        return not self._in_hand and not self._ended

    # -- the step --------------------------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Finish what ended, claim what is due, and say when to come back."""
        try:
            self._collect()
            self._finish()
            self._give_up_former()
            if self._has_reason_to_claim(now):
                self._claim(now)
            if self._has_reason_to_look(now):
                self._look(now)
        except LedgerUnavailable:
            self._clock.unanswered()
            raise
        return self._wake_at(now)

    def close(self) -> None:
        """Let the connection go."""
        self._desk.rest()

    # -- ending ----------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        in_hand, ended, ending_of = self._in_hand, self._ended, self._endings.of
        for station in self._stations:
            for outcome in station.runner.collect():
                taken = in_hand.get(outcome.run_id)
                if taken is None or taken.token != outcome.token:
                    continue
                del in_hand[outcome.run_id]
                ending = ending_of(taken, outcome)
                if ending is not None:
                    ended.append(ending)
                    if ending.state == _QUEUED:
                        self._again_us.append(ending.delay_us)

    def _finish(self) -> None:
        ended = self._ended
        while ended:
            batch = [ended[index] for index in range(min(len(ended), _LARGEST_BATCH))]
            finished = finish(self._desk, batch)
            for _ in batch:
                ended.popleft()
            self._clock.told(finished.now_us)
            if finished.promoted:
                self._expects_work = True
            self._expect_again(finished.now_us)
            if self._gate is not None:
                self._gate.release(ending.exclusive_key for ending in batch)
            for run_id in finished.refused:
                self._emit(Event(What.RUN_REFUSED, run_id=run_id, reason="it was no longer ours when it ended"))

    def _expect_again(self, now_us: int) -> None:
        """Wake for what is to be tried again; if that is a while off, the planner has to queue it first."""
        for delay_us in self._again_us:
            at_us = now_us + delay_us
            self._next_at = min(self._next_at, self._clock.here(at_us))
            self._on_waiting(at_us)
        self._again_us.clear()

    def _give_up_former(self) -> None:
        """Give up what a lost identity of this process left behind: nobody knows better that it was stopped."""
        while self._former:
            node_id = self._former[0]
            self._burial.bury(self._desk, node_id, "its session was lost")
            self._former.pop(0)
            self._expects_work = True

    # -- claiming --------------------------------------------------------------------------------------------------

    def _has_reason_to_claim(self, now: float) -> bool:
        return (self._expects_work or now >= self._next_at) and not self._is_draining

    def _claim(self, now: float) -> None:
        member = self._membership.member
        if member is None:
            return
        if member.node_id != self._known_as:
            self._misfire_late()
            self._known_as = member.node_id
        if self._is_unsure:
            self._hand_back_unknown(member)
        self._expects_work = False
        self._next_at = float("inf")
        for station in self._stations:
            self._claim_for(station, member, now)

    def _misfire_late(self) -> None:
        """Before the first claim: what nobody claimed for long is not begun where the job wants no late ticks."""
        for name, (grace_us, why) in self._endings.wanting_no_late_ticks().items():
            misfire_late(self._desk, job=name, grace_us=grace_us, why=why)

    def _claim_for(self, station: Station, member: Member, now: float) -> None:
        room = min(station.runner.room(), _LARGEST_BATCH)
        if room <= 0:
            self._expects_work = True  # as soon as something ends
            return
        if room < _FEW and station.runner.running() >= _PLENTY and not self._has_held_off:
            self._has_held_off = self._expects_work = True
            return
        self._has_held_off = False
        claimed = self._claimed(station, member, room)
        self._clock.told(claimed.now_us)
        self._take(station, claimed.claims)
        if claimed.more:
            self._expects_work = True
        elif not claimed.claims:
            self._look_at = min(self._look_at, now)

    def _claimed(self, station: Station, member: Member, room: int) -> Claimed:
        gate = None
        if self._gate is not None:
            keys = keys_wanted(self._desk, jobs=station.jobs, queues=self._queues, limit=room)
            gate = self._gate.open(keys)
        try:
            claimed = claim(
                self._desk,
                node=member.node_id,
                jobs=station.jobs,
                queues=self._queues,
                limit=room,
                decide=self._endings.overlap,
                gate=gate,
            )
        except LedgerUnavailable:
            self._is_unsure = True
            raise
        if self._gate is not None:
            self._gate.settle(claimed.claims)
        return claimed

    def _take(self, station: Station, claims: list[Claim]) -> None:
        for taken in claims:
            self._in_hand[taken.run_id] = taken
        if claims:
            station.runner.submit(claims)

    def _hand_back_unknown(self, member: Member) -> None:
        """After a claim that was not answered: give back what runs in our name without our knowing."""
        known = set(self._in_hand) | {ending.run_id for ending in self._ended}
        for unknown in mine(self._desk, node=member.node_id):
            if unknown.run_id not in known and (ending := self._endings.handed_back(unknown)) is not None:
                self._ended.append(ending)
        self._finish()
        self._is_unsure = False

    # -- looking ---------------------------------------------------------------------------------------------------

    def _has_reason_to_look(self, now: float) -> bool:
        return not self._is_draining and not self._expects_work and (self._is_hinted or now >= self._look_at)

    def _look(self, now: float) -> None:
        member = self._membership.member
        is_news, self._is_hinted = self._is_hinted, False
        seen = look(self._desk, node=member.node_id if member else "", queues=self._queues)
        self._clock.told(seen.now_us)
        self._on_look(seen)
        if seen.cancels and member is not None:
            self._stop_cancelled(member)
        self._look_at = now + self._poll_s
        self._expect(seen, now, is_news=is_news)

    def _expect(self, seen: Look, now: float, *, is_news: bool) -> None:
        """Decide from a look when to claim next; a hint may bring a claim forward, and never puts one off."""
        times = [at for at in (seen.next_available_at_us, seen.next_due_at_us) if at is not None]
        if not times:
            self._recheck_s = _FIRST_RECHECK_S
            return
        at = self._clock.here(min(times))
        if at > now:
            self._next_at, self._recheck_s = at, _FIRST_RECHECK_S
            return
        if is_news:
            self._next_at, self._recheck_s = now, _FIRST_RECHECK_S
            return
        # It says there is something, and perhaps we have just found nothing that is ours: look again, ever less often.
        self._next_at = min(self._next_at, now + self._recheck_s)
        self._recheck_s = min(self._recheck_s * 2, self._poll_s)

    def _stop_cancelled(self, member: Member) -> None:
        for run_id, token in cancels(self._desk, node=member.node_id):
            for station in self._stations:
                station.runner.stop(run_id, token, StopReason.CANCELLED)

    def _wake_at(self, now: float) -> float:
        if self._is_draining:
            return now + _HOLD_OFF_S
        if self._expects_work:
            if self._has_held_off:
                return now + _HOLD_OFF_S
            if any(station.runner.room() > 0 for station in self._stations) and self._membership.member is not None:
                return now
            return now + self._poll_s
        return min(self._next_at, self._look_at)
