"""What happens in half a year, decided beforehand from a seed: the world plays it, and the oracle knows what follows.

Two stretches of days are played, around the two changes of the clocks, and nothing lives in between. Acts keep away
from due times by some minutes: what happens at the very same moment is tested elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from tests.why.dues import MINUTE_US, Daily, Form, Hourly, dues

HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
TAKES_US = 5 * MINUTE_US  # a run that takes as long as usual
_AWAY_US = 12 * MINUTE_US  # from any due time


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


STRETCHES = ((us("2026-03-24T00:07"), us("2026-04-02T12:07")), (us("2026-10-20T00:07"), us("2026-10-30T12:07")))
FORMS: tuple[Form, ...] = (
    Daily(2, (30,), "Europe/Berlin"),
    Daily(2, (0, 30), "Europe/Berlin", is_fixed=False),
    Daily(1, (30,), "Europe/London"),
    Daily(3, (15,), "Asia/Seoul"),
    Hourly(6),
    Hourly(4),
)
OUTCOMES = ("succeeds", "fails", "cancelled", "long", "node dies", "node dies for good")


@dataclass(frozen=True, slots=True)
class LaneAct:
    """Something that a person does to a schedule. `until_us` is the end of a pause; `form` what it is changed to."""

    at_us: int
    what: str  # make, pause, resume, change, delete
    until_us: int | None = None
    form: Form | None = None


@dataclass(slots=True)
class Lane:
    """One schedule with a job of its own, what people do to it, and how the runs of its due times end."""

    id: str
    form: Form
    misfire: str
    overlap: str
    acts: list[LaneAct] = field(default_factory=list)
    outcomes: dict[int, str] = field(default_factory=dict)

    @property
    def job(self) -> str:
        return f"job-of-{self.id}"

    def form_at(self, at_us: int) -> Form | None:
        """Return the form that counts just before a time; None if there is no schedule then."""
        found: Form | None = None
        for act in self.acts:
            if act.at_us >= at_us:
                break
            found = {"make": act.form, "change": act.form, "delete": None}.get(act.what, found)
        return found

    def all_dues(self, until_us: int) -> list[int]:
        """Return all due times that the schedule ever had, by the form that counted at each."""
        changes = [act for act in self.acts if act.what in ("make", "change", "delete")]
        found: list[int] = []
        for number, act in enumerate(changes):
            end_us = changes[number + 1].at_us if number + 1 < len(changes) else STRETCHES[-1][1] + 3 * DAY_US
            if act.form is not None:
                found += dues(act.form, act.at_us, end_us)
        return [each for each in found if each <= until_us]


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which no node has the jobs. `others_live`: a node lives that has other jobs."""

    from_us: int
    to_us: int
    others_live: bool

    def covers(self, at_us: int) -> bool:
        return self.from_us < at_us < self.to_us


@dataclass(slots=True)
class Story:
    lanes: list[Lane]
    outages: list[Outage]

    def is_served(self, at_us: int) -> bool:
        """Whether a node that has the jobs lives."""
        return not any(each.covers(at_us) for each in self.outages)


def told(seed: int, lanes: int = 12) -> Story:
    """Return the story that a seed stands for."""
    dice = Random(seed)
    between = Outage(STRETCHES[0][1], STRETCHES[1][0], others_live=bool(seed % 2))
    outages = [between, *(each for stretch in STRETCHES for each in _outages(dice, *stretch))]
    story = Story([], sorted(outages, key=lambda each: each.from_us))
    for number in range(lanes):
        misfire = ("once", "skip", "all:2")[number % 3]
        overlap = "allow" if misfire == "all:2" else "forbid"
        lane = Lane(f"lane-{number:02}", FORMS[number % len(FORMS)], misfire, overlap)
        _fill(dice, lane, story, number)
        story.lanes.append(lane)
    return story


def _outages(dice: Random, from_us: int, to_us: int) -> list[Outage]:
    begins = sorted(from_us + HOUR_US * (20 + 80 * number + dice.randrange(30)) for number in range(2))
    minute = 41 * MINUTE_US  # due times are at whole, quarter and half hours
    ends = [begin + HOUR_US * dice.randrange(9, 31) for begin in begins]
    return [
        Outage(begin // HOUR_US * HOUR_US + minute, end // HOUR_US * HOUR_US + minute, others_live=bool(number))
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
        if end < to_us - 12 * HOUR_US
    ]


def _fill(dice: Random, lane: Lane, story: Story, number: int) -> None:
    """Decide what people do, and how runs end."""
    first_us, last_us = STRETCHES[0][0], STRETCHES[1][1]
    lane.acts = [LaneAct(first_us, "make", form=lane.form)]
    form, is_there = lane.form, True
    for begin_us, end_us in STRETCHES:
        at_us = begin_us + dice.randrange(6, 40) * HOUR_US
        while at_us < end_us - 30 * HOUR_US:
            if number == 0:
                break  # nobody touches this one
            what = dice.choice(("pause", "pause until", "change", "delete")) if is_there else "make"
            at_us, length_us = _quiet(story, at_us, what), dice.randrange(5, 50) * HOUR_US
            if what == "pause":
                end = LaneAct(_apart(at_us + length_us), "resume")
                lane.acts += [LaneAct(at_us, "pause"), end]
            elif what == "pause until":
                lane.acts.append(LaneAct(at_us, "pause", until_us=_apart(at_us + length_us)))
            elif what in ("change", "make"):
                form, is_there = FORMS[(FORMS.index(form) + 1) % len(FORMS)], True
                lane.acts.append(LaneAct(at_us, what, form=form))
            else:
                is_there = False
                lane.acts.append(LaneAct(at_us, "delete"))
            at_us = max(at_us, at_us + length_us) + dice.randrange(10, 60) * HOUR_US
    _end_of_all(lane, number, is_there, last_us)
    lane.acts.sort(key=lambda act: act.at_us)
    _end_runs(dice, lane, story, last_us)


def _end_of_all(lane: Lane, number: int, is_there: bool, last_us: int) -> None:
    """Let some schedules be paused when the questions are asked."""
    begins_us = _apart(last_us - 26 * HOUR_US)
    if is_there and number % 4 == 3 and all(act.at_us < begins_us for act in lane.acts):
        lane.acts.append(LaneAct(begins_us, "pause", until_us=None if number % 8 == 3 else last_us + DAY_US))


def _end_runs(dice: Random, lane: Lane, story: Story, last_us: int) -> None:
    all_dues = lane.all_dues(last_us)
    for due_us, next_us in zip(all_dues, [*all_dues[1:], last_us + DAY_US], strict=True):
        outcome = dice.choices(OUTCOMES, (6, 1, 1, 1, 1, 1))[0]
        is_calm = all(
            each.to_us < due_us - 2 * _AWAY_US or each.from_us > next_us + 2 * _AWAY_US for each in story.outages
        ) and not any(due_us - _AWAY_US < act.at_us < next_us + _AWAY_US for act in lane.acts)
        near = any(each.from_us < due_us + 30 * MINUTE_US and due_us < each.to_us for each in story.outages)
        if (outcome == "long" and not (is_calm and lane.overlap == "forbid" and next_us < last_us)) or near:
            outcome = "succeeds"
        lane.outcomes[due_us] = outcome


def _quiet(story: Story, at_us: int, what: str) -> int:
    """Return a time from `at_us` on at which this can be done. A pause begins while the jobs have a node."""
    at_us = _apart(at_us)
    while "pause" in what and not all(story.is_served(at_us + near) for near in (-HOUR_US, 0, HOUR_US)):
        at_us += HOUR_US
    return at_us


def _apart(at_us: int) -> int:
    """Return a time that is away from all due times, which are at whole, quarter and half hours."""
    return at_us // HOUR_US * HOUR_US + 52 * MINUTE_US
