"""The exchange: the loop that finishes runs in the ledger and claims due runs from it, both in batches.

One step collects the outcomes of the runners, finishes these runs, and claims as many runs as there is room for. The
next claim is made while the last batch executes. An ending is kept until the ledger has answered, so endings survive an
outage. A finish compares (run, attempt, token), so the ledger accepts it only if no other node has taken the run over.
A batch that the ledger rejects is retried in halves.

**Unknown outcomes.** A finish without an answer is repeated; the ledger recognizes the repetition. A claim without an
answer may have assigned runs to this node that it does not execute. That can even happen later, because a request can
be delayed. So the node looks up the runs in its name before the next claim, soon after that, and once a minute, and
hands back those that it does not know.

**Lost attempts.** When this process has lost its identity, it adopts the suspended runs (`lost_identities`) and gives
up the rest. An attempt that lost its lease at the gate or its fence while the node is alive is recorded as lost here,
because no reaper will find it.

**When it sleeps.** An idle node makes one small query per poll (`look`) and sleeps until the next due time. Hints wake
it sooner (`agenda`). It claims for a runner without a query only if work is likely: after a full batch, at a due time,
or after an outcome that may have freed a key.
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
from fencepost.engine.paused_queues import PausedQueues
from fencepost.engine.planned_first import PlannedFirst
from fencepost.engine.run_events import RunEvents
from fencepost.engine.runner_jobs import ASK_FOR_ROOM_S, HOLD_OFF_S, RunnerJobs
from fencepost.engine.runners.outcome import How
from fencepost.engine.runners.verdicts import UNKNOWN_JOB
from fencepost.engine.stranded import Stranded
from fencepost.engine.withdrawing import Withdrawing
from fencepost.errors import LedgerRefused, LedgerUnavailable
from fencepost.ledger.claiming import Claimed, claim, keys_wanted, mine
from fencepost.ledger.finishing import finish
from fencepost.ledger.looking import cancels, look
from fencepost.ledger.misfiring import settle_late

_LARGEST_BATCH = 500  # larger ones gain nothing in `bench/throughput.py` and hold their locks longer
# While a runner has this many claims, fewer free slots than `_FEW_SLOTS` do not yet justify another transaction.
_MANY_CLAIMS = 64
_FEW_SLOTS = 32
_RECONCILE_EVERY_S = 60.0  # a net under what answers that were lost leave behind; costs one statement
_RECONCILE_AGAIN_S = 10.0  # something was unclear: look again before a minute is over
_QUEUED = str(RunState.QUEUED)
_LOST = str(How.LOST)

Key = tuple[int, int]
"""Run and token: one claim. The same run may be claimed again while an older attempt of it has not ended here."""


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
        self._paused = PausedQueues(node, self._expect_work)
        self._emit = node.emit
        self._run_events = RunEvents(node.emit, node.wants)
        self._planned_first = PlannedFirst(node)
        self._withdrawing = Withdrawing(node)
        self._gate = node.gate
        self._agenda = node.agenda
        self._stranded = Stranded(node.runtime)
        self._figures = node.figures
        self._claims: dict[Key, Claim] = {}
        self._of_lost_identity: set[Key] = set()
        self._ended: deque[Ending] = deque()
        self._retry_delays_us: list[int] = []
        self._batch = _LARGEST_BATCH
        self._is_unsure = False
        self._reconcile_at = float("inf")
        self._is_draining = False
        self._identity: str | None = None

    def drain(self) -> None:
        """Claim no more runs."""
        self._is_draining = True

    @property
    def is_empty(self) -> bool:
        """Whether all claimed runs have ended and are finished in the ledger."""
        return not self._claims and not self._ended and not self._is_unsure

    # -- the step --------------------------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Finish the runs that ended, claim the runs that are due, and return when to step again."""
        try:
            if self._same.is_due(now):
                self._collect()  # first: outcomes are reported as events whether the ledger answers or not
                if self._same.check(self._connection):
                    self._expect_work()
            if self._agenda.is_due(now):
                self._expect_work()
            if self._claims_first():
                self._claim(now)
                self._collect()
            if not self._claims_first():
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
        self._node.is_done = self._node.drain_is_asked and self.is_empty and not self._lost_identities
        return self._wake_at(now)

    def _claims_first(self) -> bool:
        """Whether to claim before finishing: there is more to claim, and few endings wait."""
        if self._lost_identities or len(self._ended) >= _LARGEST_BATCH:  # runs of lost identities are handled first
            return False
        return self._is_claiming() and not any(group.has_held_off for group in self._groups)

    def settle(self, now: float) -> None:
        """Write to the ledger what it does not have yet. Called again after the last step, which may have claimed."""
        self._collect()
        self._finish(now)
        self._give_up_lost_identities(now)
        self._reconcile(now)

    def close(self) -> None:
        """Release the leases at the gate and the connection."""
        if self._gate is not None:
            self._gate.close()
        super().close()

    # -- ending ----------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        unfinished, ended, ending_of = self._claims, self._ended, self._policies.of
        report = self._run_events.ended if self._run_events.is_wanted() else None
        for group in self._groups:
            for outcome in group.runner.collect():
                key = (outcome.run_id, outcome.token)
                taken = unfinished.pop(key, None)
                if taken is None:
                    continue
                is_recorded_lost = outcome.how == _LOST and not self._is_given_up(key)
                ending = ending_of(taken, outcome.lost_alone() if is_recorded_lost else outcome)
                if ending is None:
                    self._release_at_gate([taken])
                    continue
                ended.append(ending)
                if outcome.error_code == UNKNOWN_JOB:
                    self._withdraw(taken.job)
                if report is not None:
                    report(taken, outcome)
                if ending.state == _QUEUED:
                    self._retry_delays_us.append(ending.delay_us)

    def _withdraw(self, job: str) -> None:
        """Take no more runs of a job that the workers do not have: they would be claimed and returned in turn."""
        if job not in self._jobs:
            return
        self._jobs = tuple(name for name in self._jobs if name != job)
        for group in self._groups:
            group.jobs = tuple(name for name in group.jobs if name != job)
        self._withdrawing.withdraw(job)

    def _is_given_up(self, key: Key) -> bool:
        """Whether the identity that claimed this run is lost."""
        member = self._node.member
        if member is not None and self._lost_identities.adopted_by(key) == member.node_id:
            return False
        return member is None or member.node_id != self._identity or key in self._of_lost_identity

    def _finish(self, now: float) -> None:
        ended = self._ended
        while ended:
            batch = [ended[index] for index in range(min(len(ended), self._batch))]
            self._end(batch, now)
            for _ in batch:
                ended.popleft()
            self._release_at_gate(batch)

    def _end(self, batch: list[Ending], now: float) -> None:
        try:
            finished = finish(self._connection, batch)
        except Exception:
            self._batch = max(1, len(batch) // 2)
            if len(batch) == 1:
                self._ended.rotate(-1)  # so that the other endings do not wait behind this one
            raise
        self._batch = min(self._batch * 2, _LARGEST_BATCH)
        self._clock.observe(finished.now_us, since=now)
        if finished.promoted:
            self._expect_work()
        self._expect_again(finished.now_us)
        self._run_events.finished(batch, finished.refused)
        self._figures.ended(batch, finished)
        self._policies.warn_outlasting(finished.outlasting)
        for run_id in finished.refused:
            self._emit(
                Event(What.RUN_REFUSED, run_id=run_id, reason="it no longer belonged to this node when it ended")
            )

    def _expect_again(self, now_us: int) -> None:
        """Schedule a wake-up for each retry. If the retry is far off, the planner has to queue the run first."""
        for delay_us in self._retry_delays_us:
            at_us = now_us + delay_us
            self._agenda.due_at(self._clock.here(at_us))
            self._node.planning.waits_until(at_us)
        self._retry_delays_us.clear()

    def _release_at_gate(self, ended: Sequence[Claim] | Sequence[Ending]) -> None:
        if self._gate is not None:
            self._gate.release(ended)

    # -- runs of lost identities, and unknown runs -----------------------------------------------------------------

    def _give_up_lost_identities(self, now: float) -> None:
        """Adopt or give up the runs of lost identities of this process, which knows best what was stopped."""
        if not self._lost_identities or self._same.is_held:
            return
        member = self._node.member
        node_id = None if member is None else member.node_id
        if self._lost_identities.settle(self._connection, node_id=node_id, unfinished=self._claims, now=now):
            self._expect_work()

    def _reconcile(self, now: float) -> None:
        """Hand back runs that the ledger has under this node's name and this process does not know."""
        member = self._node.member
        if member is None or self._same.is_held or not (self._is_unsure or now >= self._reconcile_at):
            return
        was_unsure = self._is_unsure
        self._hand_back_unknown(member, now)
        self._is_unsure = False
        self._reconcile_at = now + (_RECONCILE_AGAIN_S if was_unsure else _RECONCILE_EVERY_S)

    def _hand_back_unknown(self, member: Member, now: float) -> None:
        known = self._claims.keys() | {(ending.run_id, ending.token) for ending in self._ended}
        running = mine(self._connection, node=member.node_id)
        self._hand_back([each for each in running if (each.run_id, each.token) not in known])
        self._finish(now)

    # -- claiming --------------------------------------------------------------------------------------------------

    def _expect_work(self) -> None:
        for group in self._groups:
            group.expects_work = True

    def _claim(self, now: float) -> None:
        if not self._may_claim or not any(group.expects_work for group in self._groups):
            return
        member = self._node.member
        if member is None or self._lost_identities or self._same.is_held:
            return
        is_ready = self._use_identity(member, now)
        for group in self._groups:
            if not is_ready:
                group.has_held_off = True
            elif group.expects_work:
                self._claim_for(group, member, now)

    def _use_identity(self, member: Member, now: float) -> bool:
        """Switch to a new node identity; claims of older ones are handled by `lost_identities`.

        Return False if it is too early for a claim under the new identity.
        """
        if member.node_id == self._identity:
            return True
        if not self._planned_first.may_claim(member.node_id, now):
            return False
        self._settle_late(member)
        self._of_lost_identity = set(self._claims)
        self._identity = member.node_id
        self._reconcile_at = now + _RECONCILE_EVERY_S
        return True

    def _settle_late(self, member: Member) -> None:
        """Before the first claim, apply the misfire policy to ticks that came due while no node could run them."""
        formers, rules = self._policies.formers(), self._policies.misfires()
        count = self._figures.misfired
        settle_late(
            self._connection,
            node=member.node_id,
            queues=self._queues,
            rules=rules,
            formers=formers,
            on_misfired=count,
        )

    def _claim_for(self, group: RunnerJobs, member: Member, now: float) -> None:
        if not self._paused.open:
            group.expects_work = group.has_held_off = False  # the look that finds the end of the pause expects work
            return
        room = min(group.runner.room(), self._batch)
        if room <= 0:
            return  # `expects_work` stays set
        if room < _FEW_SLOTS and group.runner.running() >= _MANY_CLAIMS and not group.has_held_off:
            group.has_held_off = True
            return
        group.has_held_off = False
        claimed = self._claimed(group, member, room)
        self._clock.observe(claimed.now_us, since=now)
        if claimed.skipped:
            self._figures.unrun([(each.job, "skipped") for each in claimed.skipped])
        if claimed.claims:
            self._same.claimed(max(each.run_id for each in claimed.claims))
            self._begin(group, member, claimed.claims)
        if self._gate is not None:
            self._gate.settle(claimed.claims)
        is_moving = bool(claimed.claims or claimed.skipped or claimed.blocked)
        has_other_keys = self._gate is not None and self._gate.has_refused
        is_contested = claimed.contested > 0 and not is_moving
        group.expects_work = (claimed.more and is_moving) or has_other_keys or is_contested
        group.has_held_off = is_contested  # the node that has locked these rows takes or releases them soon
        if not is_moving:
            self._agenda.look_by(now)

    def _begin(self, group: RunnerJobs, member: Member, claims: Sequence[Claim]) -> None:
        """Submit claims to the runner, unless the identity that claimed them was lost meanwhile.

        Then they are handed back, before the other runs of that identity are given up. If it is lost while they are
        submitted, they are stopped; otherwise they would start with the trust of the next identity.
        """
        if self._node.member is not member:
            self._hand_back(claims)
            return
        for taken in claims:
            self._claims[taken.run_id, taken.token] = taken
        self._run_events.started(claims)
        group.runner.submit(claims)
        if self._node.member is not member:
            for taken in claims:
                group.runner.stop(taken.run_id, taken.token, StopReason.LOST)

    def _hand_back(self, claims: Sequence[Claim]) -> None:
        endings = [ending for taken in claims if (ending := self._policies.handed_back(taken)) is not None]
        self._ended.extend(endings)
        self._retry_delays_us.extend(ending.delay_us for ending in endings)

    def _claimed(self, group: RunnerJobs, member: Member, room: int) -> Claimed:
        try:
            return claim(
                self._connection,
                node=member.node_id,
                jobs=group.jobs,
                queues=self._paused.open,
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
            keys_wanted(self._connection, jobs=group.jobs, queues=self._paused.open, limit=room, without=left_out)
        )

    @property
    def _may_claim(self) -> bool:
        """Whether this node neither stops nor drains."""
        return not self._is_draining and not self._node.drain_is_asked

    def _is_claiming(self) -> bool:
        """Whether the next step will claim."""
        if not self._may_claim or self._node.member is None or self._same.is_held:
            return False
        return any(group.expects_work and group.runner.room() > 0 for group in self._groups)

    # -- looking ---------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        member = self._node.member
        was_hinted = self._agenda.begin_look(now)
        node_id = member.node_id if member else ""
        seen = look(self._connection, node=node_id, queues=self._paused.looked_at, jobs=self._jobs)
        self._clock.observe(seen.now_us, since=now)
        if member is not None and not seen.is_living:
            self._node.disown(member, "the ledger has noted its end")
        self._node.looked(seen)
        if seen.cancels and member is not None:
            self._stop_cancelled(member)
        # A run that waits for its time is queued by then, perhaps by a node that cannot take it and sends no hint.
        known = (seen.next_available_at_us, seen.next_due_at_us, seen.next_waiting_at_us)
        times = [at_us for at_us in known if at_us is not None]
        later = [self._clock.here(at_us) for at_us in times if at_us > seen.now_us]
        is_due = seen.is_due or len(later) < len(times)
        self._agenda.looked(now, next_at=min(later, default=None), is_due=is_due, was_hinted=was_hinted)
        self._paused.read(self._connection, seen, now)
        if seen.drain_is_asked:
            self._node.ask_to_drain()
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
        claiming = [group for group in self._groups if group.expects_work and self._may_claim]
        claims_at = [group.claims_at(now, is_held=is_held, is_member=is_member) for group in claiming]
        return min([self._agenda.wake_at, *claims_at])
