"""The jobs of chaos, ten and one of a later deploy, which renames another: when they are due, and what is promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.core.retry import Backoff
from fencepost.core.schedule import Schedule, cron, every

RETRIES = 60  # a cut connection fails an attempt: no run is to be given up because there were many
CRASH_LIMIT = 100  # kills lose attempts all the time: no run is to be given up because there were many
BACKOFF = Backoff(base_s=0.2, cap_s=1.0, factor=2.0, jitter=0.25)  # 73 s at most for all RETRIES: within SETTLE_S
LOCKS = ("chaos-a", "chaos-b", "chaos-c")
CHUNKS = 4  # several, so that a successor may find some of them done


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job: its name, every how many seconds it is due, and its policy."""

    name: str
    every_s: int
    overlap: str
    by_cron: bool = False
    chunks: int = 0
    more: Mapping[str, Any] | None = None
    deploy: int = 1  # the first that has it
    renamed: str | None = None  # what it is called from the second deploy on

    @property
    def schedule(self) -> Schedule:
        """When it is due. Both ways to say it mean the same instants."""
        return every(f"{self.every_s}s") if self.cron is None else cron(self.cron)

    @property
    def cron(self) -> str | None:
        """The expression by which it is due, if it is by one."""
        if not self.by_cron:
            return None
        return "* * * * * *" if self.every_s == 1 else f"*/{self.every_s} * * * * *"

    @property
    def policy(self) -> dict[str, Any]:
        """How it is run."""
        common = {"overlap": self.overlap, "retries": RETRIES, "backoff": BACKOFF, "crash_limit": CRASH_LIMIT}
        return {**common, "misfire": "all:100", "timeout": "60s", **(self.more or {})}


PLAN = (
    PlannedJob("settle", 1, "queue", by_cron=True, more={"effects": "fenced", "misfire": "all:20"}),
    PlannedJob("reconcile", 2, "forbid", more={"misfire": "once"}),
    PlannedJob("carry", 2, "queue", chunks=CHUNKS, more={"effects": "fenced", "type": "bulk", "misfire": "once"}),
    PlannedJob("quote", 2, "forbid", more={"type": "near-real-time", "misfire": "once"}),
    PlannedJob("newest", 2, "replace", more={"misfire": "once"}),
    PlannedJob("mail", 2, "allow"),
    PlannedJob("poll", 1, "forbid", more={"misfire": "skip", "grace": "1s"}),
    PlannedJob("export", 2, "queue", by_cron=True, more={"misfire": "once"}, renamed="ship"),
    PlannedJob("sweep", 2, "allow", more={"misfire": "once"}),
    PlannedJob("gather", 2, "queue", more={"effects": "fenced", "misfire": "once"}),
    PlannedJob("audit", 2, "queue", more={"misfire": "once"}, deploy=2),
)
BY_NAME = {name: planned for planned in PLAN for name in (planned.name, planned.renamed) if name is not None}
