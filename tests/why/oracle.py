"""What became of each due time, from the story alone: no row of the ledger and no rule of the engine is used.

What is written down here is what the documentation says: docs/pausing.md, docs/jobs.md (misfire, overlap).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.why.dues import dues
from tests.why.story import DAY_US, STRETCHES, TAKES_US, Lane, LaneAct, Story

_GRACE_US = 10_000_000
_ENDINGS = {
    "succeeds": ("ran", "succeeded"),
    "long": ("ran", "succeeded"),
    "node dies": ("ran", "attempt 2"),
    "fails": ("failed", "it broke"),
    "cancelled": ("cancelled", "by ann"),
    "node dies for good": ("failed", "was lost"),
}


@dataclass(frozen=True, slots=True)
class Fate:
    """The answer's word, and what its sentence has to contain. `ended_us`: when its record ended, if it has."""

    became: str
    says: str
    ended_us: int | None = None
    together: int = 1  # due times that its run stands for


class Oracle:
    """Knows one story."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def fates(self, lane: Lane, asked_us: int) -> dict[int, Fate]:
        """Return what became of each due time that had passed when it was asked."""
        passed = lane.all_dues(asked_us)
        months = STRETCHES[0][1] + DAY_US, STRETCHES[1][0] - DAY_US  # in which nothing lives: each tenth day will do
        asked = [each for each in passed if not months[0] < each < months[1] or each // DAY_US % 10 == 0]
        return {due_us: self._fate(lane, due_us, asked_us) for due_us in asked}

    def not_there(self, lane: Lane, asked_us: int) -> list[int]:
        """Return due times of the present form at which there was no schedule: before it was made, or deleted."""
        last = next(act for act in reversed(lane.acts) if act.form is not None and act.at_us < asked_us)
        assert last.form is not None
        gone = [act for act in lane.acts if last.at_us < act.at_us < asked_us and act.what == "delete"]
        before = dues(last.form, STRETCHES[0][0] - 3 * DAY_US, STRETCHES[0][0])
        return [*before[-2:], *(dues(last.form, gone[0].at_us, asked_us)[-3:] if gone else ())]

    # -- one due time ------------------------------------------------------------------------------------------------

    def _fate(self, lane: Lane, due_us: int, asked_us: int) -> Fate:
        if (pause := self.pause_at(lane, due_us)) is not None:
            return self._paused(lane, pause, asked_us)
        if self._story.is_served(due_us):
            return self._ended(lane, due_us, asked_us)
        return self._missed(lane, due_us, asked_us)

    def pause_at(self, lane: Lane, due_us: int) -> LaneAct | None:
        """Return the pause in which a due time falls. A new form of a deleted schedule is not paused."""
        found: LaneAct | None = None
        for act in lane.acts:
            if act.at_us >= due_us:
                break
            if act.what == "pause":
                found = act
            elif act.what in ("resume", "delete"):
                found = None
        return None if found is not None and found.until_us is not None and due_us > found.until_us else found

    def _paused(self, lane: Lane, pause: LaneAct, asked_us: int) -> Fate:
        ends = [
            act.at_us for act in lane.acts if act.at_us > pause.at_us and act.what in ("resume", "delete", "change")
        ]
        end_us = min([*ends, *([] if pause.until_us is None else [pause.until_us])], default=None)
        if end_us is None or end_us > asked_us:
            return Fate("paused", "by ann")
        return Fate("skipped", "paused", self._recorded_at(end_us, asked_us))

    def _recorded_at(self, end_us: int, asked_us: int) -> int:
        """Return when the end of a pause is recorded: at once, or when a node is back."""
        return min(self._return_after(end_us) or asked_us, asked_us)

    def _ended(self, lane: Lane, due_us: int, asked_us: int) -> Fate:
        is_cancelled = lane.outcomes[due_us] == "cancelled"  # before a node looks whether the key is taken
        if lane.overlap == "forbid" and not is_cancelled and self._is_taken(lane, due_us):
            return Fate("skipped", "has not ended", due_us)
        became, says = _ENDINGS[lane.outcomes[due_us]]
        return Fate(became, says, due_us + TAKES_US)

    def _is_taken(self, lane: Lane, due_us: int) -> bool:
        """Whether the run of the due time before goes on for so long that it is still there."""
        before = [each for each in lane.all_dues(due_us) if each < due_us][-1:]
        return any(
            lane.outcomes[each] == "long"
            and self._story.is_served(each)
            and self.pause_at(lane, each) is None
            and not self._is_taken(lane, each)
            for each in before
        )

    def _missed(self, lane: Lane, due_us: int, asked_us: int) -> Fate:
        """No node had the job. The next thing that happens to the schedule decides."""
        back_us = self._return_after(due_us)
        for act in lane.acts:
            if due_us < act.at_us < (back_us or asked_us) and act.what in ("change", "delete"):
                why = {"change": "schedule changed", "delete": "schedule deleted"}[act.what]
                return Fate("skipped", why, act.at_us)
        if back_us is None or back_us > asked_us:
            return Fate("no node", "no living node")
        return self._late(lane, due_us, back_us)

    def _late(self, lane: Lane, due_us: int, back_us: int) -> Fate:
        began_us = next(each.from_us for each in self._story.outages if each.to_us == back_us)
        late = [
            each
            for each in lane.all_dues(back_us - _GRACE_US - 1)
            if each > began_us
            and self.pause_at(lane, each) is None
            and not any(each < act.at_us < back_us and act.what in ("change", "delete") for act in lane.acts)
        ]
        if lane.misfire == "skip" or (lane.misfire == "all:2" and due_us not in late[-2:]):
            return Fate("misfired", "misfired", back_us)
        together = len(late) if lane.misfire == "once" else 1
        return Fate("ran", "put together" if together > 1 else "succeeded", back_us + TAKES_US, together)

    def _return_after(self, at_us: int) -> int | None:
        """Return when a node that has the jobs is there next."""
        return next((each.to_us for each in self._story.outages if each.covers(at_us)), at_us)
