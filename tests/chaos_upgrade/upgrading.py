"""The acts of an upgrade, and whether each version had its share of the work."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.proof.chaos.course import Act, ChaosStage
from fencepost.schema.revisions import known_by
from fencepost.threaded import ThreadedRuntime
from testbed import older
from testbed.wait import until

T = TypeVar("T")
RUNTIME = ThreadedRuntime()
OLD_KNOWS = 3  # the step that nodes of the older version know
_LEAVE_WITHIN_S = 8.0
_WORK_WITHIN_S = 180.0
_MIGRATE_WITHIN_S = 120.0
_LOOK_EVERY_S = 0.2


@dataclass(slots=True)
class Upgrade:
    """Who is of which version; what was seen on the way is in `shares`: attempts that ended, by phase and version."""

    old: Sequence[str]
    new: Sequence[str]
    shares: dict[str, dict[str, int]] = field(default_factory=dict)
    _migrating: threading.Thread | None = None
    _since_us: int = 0

    @property
    def acts_in_short(self) -> list[Act]:
        """What the older version could not do: go on beside a newer one, be started again, and be gone back to."""
        return [
            Act(0.1, self._migrate),
            Act(0.2, self._join),
            Act(0.3, lambda stage: self._restart(stage, self.old)),
            Act(0.4, self._worked("both versions", old=True, new=True)),
            Act(0.4, lambda stage: self._leave(stage, self.new)),
            Act(1.0, self._worked("the way back", old=True, new=False)),
        ]

    @property
    def acts(self) -> list[Act]:
        """Everything in its order, by the share of the time."""
        first, rest = self.old[:1], self.old[1:]
        return [
            Act(0.15, self._migrate),
            Act(0.30, self._join),
            Act(0.40, lambda stage: self._restart(stage, first)),
            Act(0.50, self._worked("both versions", old=True, new=True)),
            Act(0.50, lambda stage: self._leave(stage, rest)),
            Act(0.65, lambda stage: self._let_in(stage, rest)),
            Act(0.70, lambda stage: self._leave(stage, self.new)),
            Act(0.75, lambda stage: self._restart(stage, self.old)),
            Act(0.85, self._worked("the way back", old=True, new=False)),
            Act(0.85, lambda stage: self._let_in(stage, self.new)),
            Act(0.98, self._worked("both again", old=False, new=True)),
        ]

    def make_tables(self, url: str) -> None:
        """Let the older version make its tables."""
        subprocess.run(
            [older.python(), "-m", "fencepost", "migrate", "--ledger", url], check=True, env=older.environment()
        )

    def _migrate(self, stage: ChaosStage) -> None:
        """Migrate beside all that goes on; a command whose connection was cut is given again."""

        def work() -> None:
            command = [sys.executable, "-m", "fencepost", "migrate", "--ledger", stage.ledger_url]
            until(lambda: subprocess.run(command, check=False).returncode == 0, _MIGRATE_WITHIN_S, what="migrate")

        stage.say("migrate")
        self._migrating = threading.Thread(target=work)
        self._migrating.start()

    def _join(self, stage: ChaosStage) -> None:
        assert self._migrating is not None
        self._migrating.join(_MIGRATE_WITHIN_S)
        self._let_in(stage, self.new)

    def _let_in(self, stage: ChaosStage, names: Sequence[str]) -> None:
        self._mark(stage)
        for name in names:
            stage.say(f"{name} comes")
            stage.director.let_in(name)

    def _leave(self, stage: ChaosStage, names: Sequence[str]) -> None:
        self._mark(stage)
        for name in names:
            stage.director.send_away(name, within_s=_LEAVE_WITHIN_S)

    def _restart(self, stage: ChaosStage, names: Sequence[str]) -> None:
        self._leave(stage, names)
        self._let_in(stage, names)

    def _mark(self, stage: ChaosStage) -> None:
        self._since_us = _asked(stage, lambda ledger: ledger.now_us())

    def _worked(self, phase: str, *, old: bool, new: bool) -> Callable[[ChaosStage], None]:
        """Wait, without further harm, until each version that is there has ended an attempt since the last change."""

        def act(stage: ChaosStage) -> None:
            def seen(ledger: Ledger) -> bool:
                stage.director.step(is_calm=True)
                RUNTIME.sleep(_LOOK_EVERY_S)
                found = self.shares[phase] = _ended(ledger, self._since_us)
                return (not old or found["old"] > 0) and (not new or found["new"] > 0)

            what = f"work is done in the phase of {phase}"
            _asked(stage, lambda ledger: until(lambda: seen(ledger), _WORK_WITHIN_S, what=what))

        return act


def _asked(stage: ChaosStage, ask: Callable[[Ledger], T]) -> T:
    ledger = open_ledger(stage.ledger_url, RUNTIME)
    try:
        return ask(ledger)
    finally:
        ledger.close()


def _ended(ledger: Ledger, since_us: int) -> dict[str, int]:
    """Count the attempts that ended since then, by the version of their node."""
    attempt, node = ledger.tables.name("attempt"), ledger.tables.name("node")

    def work(cursor: object) -> list[str]:
        cursor.execute(  # type: ignore[attr-defined]
            f"SELECT n.version FROM {attempt} a JOIN {node} n ON n.id = a.node WHERE a.ended_at > {since_us}"
        )
        return [str(row[0]) for row in cursor.fetchall()]  # type: ignore[attr-defined]

    knows = [known_by(version) for version in ledger.read(work)]
    old = sum(each <= OLD_KNOWS for each in knows)
    return {"old": old, "new": len(knows) - old}
