"""The schedules of the demo's jobs. A separate module, so that the recount need not import the application."""

from __future__ import annotations

from fencepost.core.schedule import Schedule, cron, every

SETTLE, RECONCILE, IMPORT, QUOTE = cron("* * * * * *"), every("2s"), every("4s"), every("3s")

SCHEDULES: dict[str, Schedule] = {
    "settle": SETTLE,
    "reconcile": RECONCILE,
    "import_orders": IMPORT,
    "quote": QUOTE,
}
REQUESTED = ("notify", "report")
CHUNKS = 10  # of 0.25 s each: a kill meets an import with some of them done

TABLES = (
    "CREATE TABLE demo_effect (job TEXT NOT NULL, due_us INTEGER NOT NULL, run_id INTEGER NOT NULL, "
    "token INTEGER NOT NULL, node TEXT NOT NULL)",
    "CREATE TABLE demo_chunk (run_id INTEGER NOT NULL, chunk INTEGER NOT NULL, token INTEGER NOT NULL)",
)


def notice_key(due_us: int) -> str:
    """Return the request key of a settlement's notice: one notice for each due time."""
    return f"settled {due_us}"
