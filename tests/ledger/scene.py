"""What the tests of the hot path share: runs made by hand, claims, endings, and a look at the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.core.overlap import REPLACE, SKIP, START, WAIT, Decision
from fencepost.core.runs import Claim, Ending, Requested
from fencepost.ledger.claiming import Claimed, claim
from fencepost.ledger.connection import LedgerConnection
from fencepost.ledger.dialects.statements import statements_for
from fencepost.ledger.finishing import Finished, finish
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.planning import insert_runs

HOUR_US = 3_600_000_000
HORIZON_US = 2_000_000


def waits(job: str, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
    return WAIT if key_is_taken else START


def skips(job: str, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
    return (
        SKIP if key_is_taken and is_tick else waits(job, is_tick=is_tick, attempts=attempts, key_is_taken=key_is_taken)
    )


def replaces(job: str, *, is_tick: bool, attempts: int, key_is_taken: bool) -> Decision:
    return REPLACE if key_is_taken else START


class Scene:
    """A ledger, and what happens in it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.connection = ledger.connect("scene")
        self.statements = statements_for(self.connection)

    def close(self) -> None:
        self.connection.rest()

    def now_us(self) -> int:
        return self.ledger.now_us(self.connection)

    # -- what there is

    def add(self, *requested: Requested, horizon_us: int = HORIZON_US) -> list[int]:
        """Record runs as they are asked for; return their ids in that order."""
        now_us = self.now_us()
        before = self.last_id()
        self.connection.write(
            lambda cursor: insert_runs(cursor, self.statements, requested, now_us=now_us, horizon_us=horizon_us)
        )
        return [row[0] for row in self.rows("SELECT id FROM {run} WHERE id > %s ORDER BY id", before)]

    def add_one(self, job: str = "job", **wishes: Any) -> int:
        [run_id] = self.add(Requested(job, "manual", **wishes))
        return run_id

    def last_id(self) -> int:
        return self.rows("SELECT coalesce(max(id), 0) FROM {run}")[0][0]

    # -- what is done

    def claim(
        self, *, node: str = "node", limit: int = 100, connection: LedgerConnection | None = None, **wishes: Any
    ) -> Claimed:
        wishes = {"jobs": ("job",), "queues": ("default",), "decide": waits} | wishes
        return claim(connection or self.connection, node=node, limit=limit, **wishes)

    def claim_one(self, **wishes: Any) -> Claim:
        [claimed] = self.claim(**wishes).claims
        return claimed

    def finish(self, *endings: Ending) -> Finished:
        return finish(self.connection, endings)

    # -- what there is to see

    def rows(self, template: str, *parameters: Any) -> list[Any]:
        return self.connection.read(lambda cursor: self.statements.rows(cursor, template, *parameters))

    def change(self, template: str, *parameters: Any) -> int:
        return self.connection.write(lambda cursor: self.statements.change(cursor, template, *parameters))

    def run(self, run_id: int) -> dict[str, Any]:
        return self._one("run", "id", run_id)

    def state(self, run_id: int) -> str:
        return self.run(run_id)["state"]

    def states(self, run_ids: Sequence[int]) -> list[str]:
        return [self.state(run_id) for run_id in run_ids]

    def attempts(self, run_id: int) -> list[dict[str, Any]]:
        return self._all("attempt", "WHERE run_id = %s ORDER BY number", run_id)

    def journal(self) -> list[dict[str, Any]]:
        return self._all("journal", "ORDER BY id")

    def holder(self, key: str) -> tuple[int | None, int] | None:
        rows = self.rows("SELECT x.run_id, x.token FROM {exclusive} x WHERE x.key = %s", key)
        return tuple(rows[0]) if rows else None

    def _one(self, table: str, column: str, value: Any) -> dict[str, Any]:
        [row] = self._all(table, f"WHERE {column} = %s", value)
        return row

    def _all(self, table: str, rest: str, *parameters: Any) -> list[dict[str, Any]]:
        names = [column.name for column in getattr(self.ledger.tables, table).columns]
        listed = ", ".join(f"t.{name}" for name in names)
        return [
            dict(zip(names, row, strict=True))
            for row in self.rows(f"SELECT {listed} FROM {{{table}}} t {rest}", *parameters)
        ]


def ending(claimed: Claim, state: str = "succeeded", outcome: str | None = "succeeded", **more: Any) -> Ending:
    return Ending(
        claimed.run_id,
        claimed.attempt,
        claimed.token,
        state,
        outcome,
        exclusive_key=claimed.exclusive_key,
        **more,
    )


def failed(claimed: Claim, state: str = "dead", **more: Any) -> Ending:
    return ending(claimed, state, "failed", **more)


def handed_back(claimed: Claim) -> Ending:
    return ending(claimed, "queued", None)


def tick(schedule: str, due_at_us: int, **wishes: Any) -> Requested:
    """A tick's run, as a planner asks for it."""
    wishes = {"available_at_us": due_at_us} | wishes
    key = f"tick:{due_at_us}:{schedule}"
    return Requested("job", "scheduled", origin_key=key, schedule=schedule, due_at_us=due_at_us, **wishes)
