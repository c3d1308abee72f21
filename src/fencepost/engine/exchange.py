"""The exchange: what ended goes to the ledger, what is due comes from it, both in batches.

One step collects outcomes from the runners, finishes them, and claims as much as there is room for; the next claim
is on its way while the last batch executes. Nothing that ended is forgotten before the ledger has answered: after
an outage the endings are still here, and since a finish compares (run, attempt, token) it is believed only if
nobody took the run over in the meantime. A batch that the ledger does not take is tried again in halves.

**Unknown outcomes.** A finish that was not answered is repeated; the ledger knows its own. A claim that was not
answered may have left runs in this node's name that nobody executes, and may do so even later, for a request can be
slow: they are looked up by identity before the next claim, soon after, and now and then, and are handed back.

**Lost attempts.** When this process lost its identity, it adopts what it kept up (`lost_identities`), and gives up the
rest. An attempt that lost its right to run while the node lives (its lease at the gate, its fence) is recorded as lost,
for nobody else would.

**When it sleeps.** An idle node asks one small question per poll (`look`) and sleeps until the next due time; hints
wake it sooner (`agenda`). It claims for a runner without asking only where it has reason to believe that there is
something: a full batch before, a due time that has come, an outcome that may have freed a key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fencepost.core.events import Event, What
from fencepost.core.runs import Claim, Ending, StopReason
from fencepost.core.states import RunState
from fencepost.engine.gate import Gate
from fencepost.engine.loop_step import LedgerStep
from fencepost.engine.node_state import EXCHANGE, Member, NodeState
from fencepost.engine.planned_first import PlannedFirst
from fencepost.engine.runner_jobs import ASK_FOR_ROOM_S, HOLD_OFF_S, RunnerJobs
from fencepost.engine.runners.outcome import How
from fencepost.engine.runners.verdicts import UNKNOWN_JOB
from fencepost.engine.stranded import Stranded
from fencepost.engine.tidings import Tidings
from fencepost.engine.withdrawing import Withdrawing
from fencepost.errors import LedgerRefused, LedgerUnavailable
from fencepost.ledger.claiming import Claimed, claim, keys_wanted, mine
from fencepost.ledger.finishing import finish
from fencepost.ledger.looking import cancels, look
from fencepost.ledger.misfiring import settle_late

_LARGEST_BATCH = 500
# While this many claims are in hand, a few free places are not worth a transaction of their own just yet.
_PLENTY = 64
_FEW = 32
_ACCOUNT_EVERY_S = 60.0
_ACCOUNT_AGAIN_S = 10.0
_QUEUED = str(RunState.QUEUED)
_LOST = str(How.LOST)

Key = tuple[int, int]
"""Run and token: one claim. The same run may come again while an older attempt of it is still in hand."""


class Exchange(LedgerStep):
    """The step between the ledger and the runners."""

    name = EXCHANGE

    def __init__(self, node: NodeState) -> None:
        super().__init__(node)
        self._same = node.same
        self._same.watch(self._connection)
        self._lost_identities = node.lost_identities
        self._groups = node.runner_jobs
        self._jobs = tuple(name for group in self._groups for name in group.jobs)
        self._policies = node.policies
        self._clock = node.clock
        self._queues = tuple(node.settings.queues)
        self._emit = node.emit
        self._tidings = Tidings(node.emit, node.wants)
        self._planned_first = PlannedFirst(node)
        self._withdrawing = Withdrawing(node)
        self._gate = node.gate
        self._agenda = node.agenda
        self._stranded = Stranded(node.runtime)
        self._in_hand: dict[Key, Claim] = {}
        self._of_lost_identity: set[Key] = set()
        self._ended: deque[Ending] = deque()
        self._again_us: list[int] = []
        self._batch = _LARGEST_BATCH
        self._is_unsure = False
        self._account_at = float("inf")
        self._is_draining = False
        self._known_as: str | None = None

    def drain(self) -> None:
        """Claim nothing more."""
        self._is_draining = True

    @property
    def is_empty(self) -> bool:
        """Whether everything claimed has ended, and the ledger knows."""
        return not self._in_hand and not self._ended and not self._is_unsure

    # -- the step --------------------------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Finish what ended, claim what is due, and say when to come back."""
        try:
            if self._same.is_due(now):
                self._collect()  # what has ended is reported, whether the ledger answers or not
                if self._same.check(self._connection):
                    self._expect_work()
            if self._agenda.is_due(now):
                self._expect_work()
            if self._is_in_a_hurry():
                self._claim(now)
                self._collect()
            if not self._is_in_a_hurry():
                self.settle(now)
                self._claim(now)
            if self._agenda.wants_look(now, is_claiming=self._is_claiming()):
                self._look(now)
        except LedgerUnavailable:
            self._clock.unanswered()
            self._same.doubt()
            raise
        except LedgerRefused:
            self._same.doubt()
            raise
        return self._wake_at(now)

    def _is_in_a_hurry(self) -> bool:
        """Whether what is due comes before what has ended: there is more to begin, and not too much to tell."""
        if self._lost_identities or len(self._ended) >= _LARGEST_BATCH:  # what lost identities left comes first
            return False
        return self._is_claiming() and not any(group.has_held_off for group in self._groups)

    def settle(self, now: float) -> None:
        """Tell the ledger whatever it does not know yet. After the last step, once more: it may have been a claim."""
        self._collect()
        self._finish()
        self._give_up_lost_identities(now)
        self._account(now)

    def close(self) -> None:
        """Let go of the leases at the gate, and of the connection."""
        if self._gate is not None:
            self._gate.close()
        super().close()

    # -- ending ----------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        in_hand, ended, ending_of = self._in_hand, self._ended, self._policies.of
        tell = self._tidings.ended if self._tidings.is_wanted() else None
        for group in self._groups:
            for outcome in group.runner.collect():
                key = (outcome.run_id, outcome.token)
                taken = in_hand.pop(key, None)
                if taken is None:
                    continue
                is_told = outcome.how == _LOST and not self._is_given_up(key)
                ending = ending_of(taken, outcome.lost_alone() if is_told else outcome)
                if ending is None:
                    self._release_at_gate([taken])
                    continue
                ended.append(ending)
                if outcome.error_code == UNKNOWN_JOB:
                    self._withdraw(taken.job)
                if tell is not None:
                    tell(taken, outcome)
                if ending.state == _QUEUED:
                    self._again_us.append(ending.delay_us)

    def _withdraw(self, job: str) -> None:
        """Take no more runs of a job that the workers do not have: they would only go back and forth."""
        if job not in self._jobs:
            return
        self._jobs = tuple(name for name in self._jobs if name != job)
        for group in self._groups:
            group.jobs = tuple(name for name in group.jobs if name != job)
        self._withdrawing.withdraw(job)

    def _is_given_up(self, key: Key) -> bool:
        """Whether the identity that claimed it is no more."""
        member = self._node.member
        if member is not None and self._lost_identities.adopted_by(key) == member.node_id:
            return False
        return member is None or member.node_id != self._known_as or key in self._of_lost_identity

    def _finish(self) -> None:
        ended = self._ended
        while ended:
            batch = [ended[index] for index in range(min(len(ended), self._batch))]
            self._end(batch)
            for _ in batch:
                ended.popleft()
            self._release_at_gate(batch)

    def _end(self, batch: list[Ending]) -> None:
        try:
            finished = finish(self._connection, batch)
        except Exception:
            self._batch = max(1, len(batch) // 2)
            if len(batch) == 1:
                self._ended.rotate(-1)  # whatever it is, the others shall not wait behind it
            raise
        self._batch = min(self._batch * 2, _LARGEST_BATCH)
        self._clock.told(finished.now_us)
        if finished.promoted:
            self._expect_work()
        self._expect_again(finished.now_us)
        self._tidings.finished(batch, finished.refused)
        self._policies.tell_outlasting(finished.outlasting)
        for run_id in finished.refused:
            self._emit(Event(What.RUN_REFUSED, run_id=run_id, reason="it was no longer ours when it ended"))

    def _expect_again(self, now_us: int) -> None:
        """Wake for what is to be tried again; if that is a while off, the planner has to queue it first."""
        for delay_us in self._again_us:
            at_us = now_us + delay_us
            self._agenda.due_at(self._clock.here(at_us))
            self._node.planning.waits_until(at_us)
        self._again_us.clear()

    def _release_at_gate(self, ended: Sequence[Claim] | Sequence[Ending]) -> None:
        if self._gate is not None:
            self._gate.release(ended)

    # -- what is not known to have been ours -----------------------------------------------------------------------

    def _give_up_lost_identities(self, now: float) -> None:
        """See to what lost identities of this process left behind: nobody knows better what was stopped."""
        if not self._lost_identities or self._same.is_held:
            return
        member = self._node.member
        node_id = None if member is None else member.node_id
        if self._lost_identities.settle(self._connection, node_id=node_id, in_hand=self._in_hand, now=now):
            self._expect_work()

    def _account(self, now: float) -> None:
        """See to it that nothing runs in our name without our knowing."""
        member = self._node.member
        if member is None or self._same.is_held or not (self._is_unsure or now >= self._account_at):
            return
        was_unsure = self._is_unsure
        self._hand_back_unknown(member)
        self._is_unsure = False
        self._account_at = now + (_ACCOUNT_AGAIN_S if was_unsure else _ACCOUNT_EVERY_S)

    def _hand_back_unknown(self, member: Member) -> None:
        known = self._in_hand.keys() | {(ending.run_id, ending.token) for ending in self._ended}
        running = mine(self._connection, node=member.node_id)
        self._hand_back([each for each in running if (each.run_id, each.token) not in known])
        self._finish()

    # -- claiming --------------------------------------------------------------------------------------------------

    def _expect_work(self) -> None:
        for group in self._groups:
            group.expects_work = True

    def _claim(self, now: float) -> None:
        if self._is_draining or not any(group.expects_work for group in self._groups):
            return
        member = self._node.member
        if member is None or self._lost_identities or self._same.is_held:
            return
        is_ready = self._be(member, now)
        for group in self._groups:
            if not is_ready:
                group.has_held_off = True
            elif group.expects_work:
                self._claim_for(group, member, now)

    def _be(self, member: Member, now: float) -> bool:
        """Note under which identity claims are made from now on; others answer for what older ones have in hand.

        False if it is too early for a claim under that identity.
        """
        if member.node_id == self._known_as:
            return True
        if not self._planned_first.may_claim(member.node_id, now):
            return False
        self._settle_late(member)
        self._of_lost_identity = set(self._in_hand)
        self._known_as = member.node_id
        self._account_at = now + _ACCOUNT_EVERY_S
        return True

    def _settle_late(self, member: Member) -> None:
        """Before the first claim: ticks that came due while no node could run them follow the misfire policy."""
        formers, rules = self._policies.formers(), self._policies.misfires()
        settle_late(self._connection, node=member.node_id, queues=self._queues, rules=rules, formers=formers)

    def _claim_for(self, group: RunnerJobs, member: Member, now: float) -> None:
        room = min(group.runner.room(), self._batch)
        if room <= 0:
            return  # it goes on expecting
        if room < _FEW and group.runner.running() >= _PLENTY and not group.has_held_off:
            group.has_held_off = True
            return
        group.has_held_off = False
        claimed = self._claimed(group, member, room)
        self._clock.told(claimed.now_us)
        if claimed.claims:
            self._same.claimed(max(each.run_id for each in claimed.claims))
            self._begin(group, member, claimed.claims)
        if self._gate is not None:
            self._gate.settle(claimed.claims)
        is_moving = bool(claimed.claims or claimed.skipped or claimed.blocked)
        has_other_keys = self._gate is not None and self._gate.has_refused
        is_contested = claimed.contested > 0 and not is_moving
        group.expects_work = (claimed.more and is_moving) or has_other_keys or is_contested
        group.has_held_off = is_contested  # whoever is at them has them in a moment, or lets go
        if not is_moving:
            self._agenda.look_by(now)

    def _begin(self, group: RunnerJobs, member: Member, claims: Sequence[Claim]) -> None:
        """Let the runner have what was claimed, unless the identity that claimed it was lost meanwhile.

        Then it is handed back, before the rest of that identity is given up. If it was lost in this very moment, it is
        stopped, or the next identity's trust would begin it.
        """
        if self._node.member is not member:
            self._hand_back(claims)
            return
        for taken in claims:
            self._in_hand[taken.run_id, taken.token] = taken
        self._tidings.started(claims)
        group.runner.submit(claims)
        if self._node.member is not member:
            for taken in claims:
                group.runner.stop(taken.run_id, taken.token, StopReason.LOST)

    def _hand_back(self, claims: Sequence[Claim]) -> None:
        endings = [ending for taken in claims if (ending := self._policies.handed_back(taken)) is not None]
        self._ended.extend(endings)
        self._again_us.extend(ending.delay_us for ending in endings)

    def _claimed(self, group: RunnerJobs, member: Member, room: int) -> Claimed:
        try:
            return claim(
                self._connection,
                node=member.node_id,
                jobs=group.jobs,
                queues=self._queues,
                limit=room,
                decide=self._policies.overlap,
                gate=None if self._gate is None else self._opened(self._gate, group, room),
            )
        except LedgerUnavailable:
            self._is_unsure = True
            self._batch = max(1, room // 2)
            raise

    def _opened(self, gate: Gate, group: RunnerJobs, room: int) -> dict[str, int]:
        left_out = gate.refused()
        return gate.open(
            keys_wanted(self._connection, jobs=group.jobs, queues=self._queues, limit=room, without=left_out)
        )

    def _is_claiming(self) -> bool:
        """Whether the next step will claim."""
        if self._is_draining or self._node.member is None or self._same.is_held:
            return False
        return any(group.expects_work and group.runner.room() > 0 for group in self._groups)

    # -- looking ---------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        member = self._node.member
        is_news = self._agenda.begin_look(now)
        seen = look(self._connection, node=member.node_id if member else "", queues=self._queues, jobs=self._jobs)
        self._clock.told(seen.now_us)
        if member is not None and not seen.is_living:
            self._node.disown(member, "the ledger has noted its end")
        self._node.looked(seen)
        if seen.cancels and member is not None:
            self._stop_cancelled(member)
        # What waits for its time is queued by then, perhaps by a node that cannot take it and tells nobody.
        known = (seen.next_available_at_us, seen.next_due_at_us, seen.next_waiting_at_us)
        times = [at_us for at_us in known if at_us is not None]
        later = [self._clock.here(at_us) for at_us in times if at_us > seen.now_us]
        is_due = seen.is_due or len(later) < len(times)
        self._agenda.looked(now, next_at=min(later, default=None), is_due=is_due, is_news=is_news)
        if seen.keys_are_awaited:
            self._queue_stranded(now)

    def _queue_stranded(self, now: float) -> None:
        if now < self._stranded.may_look_at:
            self._agenda.look_by(self._stranded.may_look_at)
        elif self._stranded.queued(self._connection):
            self._expect_work()

    def _stop_cancelled(self, member: Member) -> None:
        for run_id, token in cancels(self._connection, node=member.node_id):
            for group in self._groups:
                group.runner.stop(run_id, token, StopReason.CANCELLED)

    def _wake_at(self, now: float) -> float:
        if self._is_draining:
            return now + HOLD_OFF_S
        if self._lost_identities:
            return now + ASK_FOR_ROOM_S
        is_held, is_member = self._same.is_held, self._node.member is not None
        claiming = [group for group in self._groups if group.expects_work]
        claims_at = [group.claims_at(now, is_held=is_held, is_member=is_member) for group in claiming]
        return min([self._agenda.wake_at, *claims_at])
