"""Evidence of a cluster that kept every promise, from one seed, without any of the code that is to be judged.

Three jobs on schedules: `tidy` forbids overlap, `mail` allows it, `sums` queues. Ticks run, fail and are tried again,
are lost and run elsewhere, are skipped, misfire in stretches, or are made good for by one run. Each run that succeeds
leaves one effect; stale writers try, and are refused. Programs ask for runs under keys. Locks are taken beside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from fencepost.proof.evidence import (
    AttemptSeen,
    Due,
    Effect,
    Evidence,
    JobRules,
    RunSeen,
    Timing,
    Transition,
)
from fencepost.proof.history import Entry, EntryKind, History
from tests.proof.lock_world import TTL_S, LockWorld

WALL_US = 1_800_000_000_000_000
RULES = {
    "tidy": JobRules("forbid", 2, (1.0, 2.0), 3),
    "mail": JobRules("allow", 1, (0.5,), 3),
    "sums": JobRules("queue", 2, (1.0, 2.0), 3),
}
EVERY_S = {"tidy": 6, "mail": 4, "sums": 9}
QUIET_FROM = 60.0
ENDED_AT = 100.0
TIMING = Timing(TTL_S, 1.0, QUIET_FROM, ENDED_AT)


def us(at: float) -> int:
    return WALL_US + round(at * 1_000_000)


@dataclass
class World:
    """Everything that comes to be, by and by."""

    seed: int
    random: Random = field(init=False)
    entries: list[Entry] = field(default_factory=list)
    runs: list[RunSeen] = field(default_factory=list)
    attempts: list[AttemptSeen] = field(default_factory=list)
    moves: list[tuple[float, Transition]] = field(default_factory=list)
    effects: list[tuple[float, Effect]] = field(default_factory=list)
    due: list[Due] = field(default_factory=list)
    free_at: dict[str, float] = field(default_factory=dict)
    token: dict[str, int] = field(default_factory=dict)
    events: dict[str, bool] = field(default_factory=dict)
    calls: int = 1_000_000

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def evidence(self) -> Evidence:
        for job, every_s in EVERY_S.items():
            self._schedule(job, every_s)
        self._requests()
        bulk = self._bulk()
        self._reads()
        self.entries += LockWorld(self.seed, calls=20).run()
        return Evidence(
            history=History(sorted(self.entries, key=lambda entry: entry.at)),
            timing=TIMING,
            due=tuple(self.due),
            runs=tuple(self.runs),
            attempts=tuple(self.attempts),
            transitions=tuple(step for _, step in sorted(self.moves, key=lambda each: each[0])),
            effects=tuple(effect for _, effect in sorted(self.effects, key=lambda each: each[0])),
            jobs=RULES,
            wall_us_at_0=WALL_US,
            notes={
                "ledger_slack_s": 0.0,
                "store_slack_s": 0.0,
                "bulk": bulk,
                "events": {"inbox": self.events},
                "effects_of": {"tidy": "out:tidy", "sums": "out:sums", "mail": None},
            },
        )

    # -- ticks

    def _schedule(self, job: str, every_s: int) -> None:
        times = [float(at) for at in range(every_s, int(ENDED_AT), every_s)]
        self.due += [Due(job, job, us(at)) for at in times]
        while times:
            length = self.random.randint(2, 3) if self.random.random() < 0.15 and times[0] < QUIET_FROM - 30 else 1
            stretch, times = times[:length], times[length:]
            fate = self.random.random()
            if length > 1 and fate < 0.5:
                self._aside(job, stretch, "misfired")
            elif length == 1 and fate < 0.1:
                self._aside(job, stretch, "skipped")
            else:
                self._tick(job, stretch)

    def _new(self, job: str, state: str, **more: Any) -> RunSeen:
        key = None if job == "mail" else f"job:{job}"
        run = RunSeen(len(self.runs) + 1, job, state, exclusive_key=key, **more)
        self.runs.append(run)
        return run

    def _move(self, at: float, run: RunSeen, before: str | None, after: str, token: int | None = None) -> None:
        self.moves.append((at, Transition(run.id, before, after, token)))

    def _aside(self, job: str, stretch: list[float], state: str) -> None:
        run = self._new(job, state, **_tick_of(job, stretch), ended_us=us(stretch[-1]))
        if state == "skipped":
            self._move(stretch[-1], run, None, "queued")
            self._move(stretch[-1] + 0.1, run, "queued", state)
        else:
            self._move(stretch[-1] + 0.1, run, None, state)

    def _tick(self, job: str, stretch: list[float]) -> None:
        run = self._new(job, "queued", **_tick_of(job, stretch), available_us=us(stretch[-1]))
        self._move(stretch[-1] - 0.5, run, None, "queued")
        self._execute(run, stretch[-1], f"{job}@{round(stretch[-1])}")

    # -- attempts

    def _execute(self, run: RunSeen, from_at: float, work: str) -> None:
        """Try a run until it ends, as the rules of its job say."""
        rules = RULES[run.job]
        key = run.exclusive_key or f"run:{run.id}"
        at = max(from_at, self.free_at.get(key, 0.0)) + self.random.random() * 0.8
        failures = crashes = number = 0
        state = "queued"
        while state == "queued":
            if at > ENDED_AT - 3:
                break
            number += 1
            token = self.token[key] = max(self.token.get(key, 0) + 1, us(at))
            node = f"node-{self.random.randrange(3)}"
            self._move(at, run, "queued", "running", token)
            self._note(at, "begin", node, run, token)
            outcome = self._outcome(at)
            ended_at = at + 0.1 + self.random.random() * (2.0 if outcome == "lost" else 0.7)
            failures += outcome in ("failed", "timed_out")
            crashes += outcome == "lost"
            state = self._after(outcome, failures, crashes, rules)
            self._write(run, work, at, ended_at, token=token, node=node, outcome=outcome)
            self.attempts.append(AttemptSeen(run.id, number, token, node, outcome, us(at), us(ended_at)))
            self._move(ended_at, run, "running", state)
            if outcome != "lost":
                self._note(ended_at, "end", node, run, token)
                told = {"name": str(run.id), "token": token, "detail": {"outcome": outcome}}
                self._call("finish", node, ended_at - 0.01, ended_at + 0.01, EntryKind.OK, **told)
            has_failed = outcome in ("failed", "timed_out")
            pause_s = rules.pauses_s[min(failures, len(rules.pauses_s)) - 1] if has_failed else 0.0
            at = ended_at + pause_s + 0.01 + self.random.random() * 0.3
            self.free_at[key] = ended_at if state != "queued" else at
        self._close(run, state, number=number, failures=failures, crashes=crashes)

    def _outcome(self, at: float) -> str:
        dice = self.random.random()
        if dice < 0.12:
            return "failed"
        if dice < 0.16:
            return "timed_out"
        return "lost" if dice < 0.28 and at < QUIET_FROM - 10 else "succeeded"

    def _after(self, outcome: str, failures: int, crashes: int, rules: JobRules) -> str:
        if outcome == "succeeded":
            return "succeeded"
        is_over = failures > rules.retries or (rules.crashes_allowed or 9) <= crashes
        return "dead" if is_over else "queued"

    def _close(self, run: RunSeen, state: str, *, number: int, failures: int, crashes: int) -> None:
        values = {name: getattr(run, name) for name in RunSeen.__slots__}
        values |= {"state": state, "attempts": number, "failures": failures, "crashes": crashes}
        if state == "queued":
            values["available_us"] = us(ENDED_AT)
        self.runs[run.id - 1] = RunSeen(**values)

    def _note(self, at: float, what: str, node: str, run: RunSeen, token: int) -> None:
        self.entries.append(
            Entry(at, EntryKind.NOTE, what, node, name=str(run.id), token=token, detail={"job": run.job})
        )

    def _call(self, what: str, node: str, sent: float, ended: float, kind: EntryKind, **more: Any) -> None:
        self.calls += 1
        self.entries.append(Entry(sent, EntryKind.INVOKE, what, node, call=self.calls, **more))
        self.entries.append(Entry(ended, kind, what, node, call=self.calls, **more))

    # -- effects

    def _write(
        self, run: RunSeen, work: str, at: float, ended_at: float, *, token: int, node: str, outcome: str
    ) -> None:
        """Let the attempt write; if it was lost, only afterwards, when it is refused."""
        # Where overlap is allowed, each run is fenced by itself.
        resource = f"out:{run.job}" if run.exclusive_key else f"run:{run.id}"
        fields: dict[str, Any] = {"name": resource, "token": token, "grant": f"{run.id}/{token}"}
        fields["detail"] = {"key": work}
        if outcome == "lost":
            self._call("write", node, ended_at + 0.02, ended_at + 3.0, EntryKind.REFUSED, **fields)
        elif outcome == "succeeded":
            kind = self.random.choice((EntryKind.OK, EntryKind.OK, EntryKind.UNKNOWN))
            self._call("write", node, at + 0.02, ended_at - 0.02, kind, **fields)
            self.effects.append((ended_at - 0.03, Effect(resource, work, token, fields["grant"], run.id)))

    def _reads(self) -> None:
        for resource in ("out:tidy", "out:sums"):
            at = self.random.random() * 90
            seen = [effect.key for then, effect in self.effects if effect.resource == resource and then < at + 0.5]
            self._call("read", "reader", at, at + 0.5, EntryKind.OK, name=resource, detail={"keys": seen})

    # -- what is asked for

    def _requests(self) -> None:
        for number in range(3):
            at, key = self.random.random() * 50, f"order-{number}"
            asked = {"request_key": key, "payload_hash": f"hash-{number}", "origin_key": f"request:{key}"}
            run = self._new("mail", "queued", **asked)
            self._move(at + 0.05, run, None, "queued")
            self._execute(run, at + 0.1, f"mail:{key}")
            for again in range(self.random.randint(1, 3)):
                sent = at + again * 2
                told = {"name": key, "detail": {"payload": f"hash-{number}", "run": run.id}}
                self._call("request", "client", sent, sent + 0.2, EntryKind.OK, **told)
            if self.random.random() < 0.5:
                other = {"name": key, "detail": {"payload": "another", "why": "payload"}}
                self._call("request", "client", at + 9, at + 9.2, EntryKind.REFUSED, **other)

    def _bulk(self) -> list[dict[str, Any]]:
        keys = [f"row-{number}" for number in range(6)]
        skipped = [key for key in keys if self.random.random() < 0.2]
        filtered = [key for key in keys[-1:] if key not in skipped]
        written = [key for key in keys if key not in (*skipped, *filtered)]
        for key in written:
            self._land("bulk:load", key, 30.0 + keys.index(key))
        for number in range(3):
            self.events[f"event-{number}"] = is_committed = self.random.random() < 0.7
            if is_committed:
                self._land("inbox", f"event-{number}", 40.0 + number)
        lengths = {"read": keys, "written": written, "filtered": filtered, "skipped": skipped}
        counts = {name: len(several) for name, several in lengths.items()}
        told = {"input": keys, "skipped": skipped, "skippable": skipped, "filtered": filtered}
        return [{"resource": "bulk:load", **told, "counts": counts, "totals": [counts], "run": 0}]

    def _land(self, resource: str, key: str, at: float) -> None:
        fields = {"name": resource, "token": 7, "grant": "g", "detail": {"key": key}}
        self._call("write", "node-0", at, at + 0.5, EntryKind.OK, **fields)
        self.effects.append((at + 0.3, Effect(resource, key, 7, "g")))


def _tick_of(job: str, stretch: list[float]) -> dict[str, Any]:
    return {
        "schedule": job,
        "due_us": us(stretch[-1]),
        "from_us": us(stretch[0]),
        "ticks": len(stretch),
        "origin_key": f"tick:{us(stretch[-1])}:{job}",
    }


def clean(seed: int) -> Evidence:
    return World(seed).evidence()
