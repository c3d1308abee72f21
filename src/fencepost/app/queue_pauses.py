"""Pauses of a queue, or of everything: ``app.operations.pauses.pause("mail", by="ann", reason="the relay is down")``.

Nodes claim nothing that is paused; see `fencepost.ledger.queue_pauses` for what is promised, and docs/pausing.md for
what happens to schedules, retries and requests meanwhile.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.app.pause_times import pause_end_us
from fencepost.app.records import PauseRecord, ResumedRecord
from fencepost.app.records.versions import pause_version
from fencepost.app.scoped import acting, actor
from fencepost.core.duration import Duration
from fencepost.core.identity import LONGEST_NAME
from fencepost.core.nearest import suggestion
from fencepost.core.noted import says_something
from fencepost.core.rights import HumanAct
from fencepost.errors import InvalidParameters, StateChanged
from fencepost.ledger import jobs
from fencepost.ledger.nodes import NodeRow, living_nodes
from fencepost.ledger.queue_pauses import (
    EVERYTHING,
    PauseCheck,
    QueuePause,
    ignores_pauses,
    pause_queue,
    queue_pauses,
    resume_queue,
)
from fencepost.ledger.serving import queue_of

if TYPE_CHECKING:
    from fencepost.core.rights import Scope
    from fencepost.ledger.ledger import Ledger


class QueuePauses:
    """The pauses of a ledger: ``app.operations.pauses``. To pause and to resume needs the role for all jobs."""

    def __init__(self, ledger: Ledger, scope: Scope, wake: Callable[[], None]) -> None:
        """Act on `ledger`, as `scope` allows; `wake` wakes this process's node."""
        self._ledger = ledger
        self._scope = scope
        self._wake = wake

    def list(self) -> builtins.list[PauseRecord]:
        """Return the pauses that last, that of everything first.

        Without a role for all jobs: that of everything, and those of the queues of one's own jobs.
        """
        found = queue_pauses(self._ledger)
        if found and (allowed := self._scope.visible) is not None:
            queues = {EVERYTHING, *self._queues_of(allowed)}
            found = [each for each in found if each.queue in queues]
        return self._shown(found)

    def pause(
        self,
        queue: str | None,
        *,
        by: str,
        reason: str,
        until: datetime | str | None = None,
        duration: Duration | None = None,
        expect: str | None = None,
    ) -> PauseRecord:
        """Let no node claim runs of this queue, or of any if it is None, until `resume` or the end.

        The reason is shown on every page. To change it, or the end, pause again. `expect` is the `pause_version` that
        the caller saw: raise `StateChanged` if it has changed.
        """
        self._scope.require(HumanAct.PAUSE_ALL)
        who, name = actor(self._scope, by), self._known(queue)
        if not says_something(reason):
            raise InvalidParameters("a pause needs a reason: it is shown on every page")
        until_us = pause_end_us(self._ledger, until=until, duration=duration)
        check = _check(expect)
        with acting(self._scope):
            made = pause_queue(self._ledger, name, by=who, reason=reason.strip(), until_us=until_us, check=check)
        self._wake()
        return self._shown([made])[0]

    def resume(
        self, queue: str | None, *, by: str, reason: str | None = None, expect: str | None = None
    ) -> ResumedRecord:
        """End the pause of a queue, or that of everything if it is None. Other pauses last."""
        self._scope.require(HumanAct.RESUME_ALL)
        if queue == EVERYTHING:
            raise InvalidParameters("say which queue is resumed: no queue has an empty name; None is everything")
        who, name = actor(self._scope, by), EVERYTHING if queue is None else queue
        with acting(self._scope):
            ended = resume_queue(self._ledger, name, by=who, reason=reason, check=_check(expect))
        self._wake()
        return ResumedRecord(queue, ended is not None, tuple(self._shown(queue_pauses(self._ledger))))

    def _known(self, queue: str | None) -> str:
        """Return the queue as it is stored; refuse one that neither a node nor a job has: it would pause nothing."""
        if queue is None:
            return EVERYTHING
        known = {each for node in living_nodes(self._ledger) for each in node.queues} | self._queues_of(None)
        if queue not in known or not 0 < len(queue) <= LONGEST_NAME:
            raise InvalidParameters(f"no living node and no job has the queue {queue!r}; {suggestion(queue, known)}")
        return queue

    def _queues_of(self, names: frozenset[str] | None) -> set[str]:
        return {queue_of(row.policy) for row in jobs.jobs(self._ledger, names=names)}

    def _shown(self, found: Sequence[QueuePause]) -> builtins.list[PauseRecord]:
        older = [node for node in living_nodes(self._ledger) if ignores_pauses(node)] if found else []
        older = [node for node in older if self._sees(node)]
        return [PauseRecord.of(each, ignored_by=[node.name for node in older if _takes(node, each)]) for each in found]

    def _sees(self, node: NodeRow) -> bool:
        return any(self._scope.sees(job) for job in node.jobs)


def _check(expect: str | None) -> PauseCheck:
    def check(there: QueuePause | None) -> None:
        if expect is not None and pause_version(None if there is None else PauseRecord.of(there)) != expect:
            now = "nothing is paused there" if there is None else str(there)
            raise StateChanged(f"this pause has changed since, and nothing was done: {now}")

    return check


def _takes(node: NodeRow, pause: QueuePause) -> bool:
    return any(pause.concerns(queue) for queue in node.queues)
