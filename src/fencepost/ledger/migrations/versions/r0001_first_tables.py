"""The first tables of the ledger."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from fencepost.schema.step import MigrationStep

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
BIG = sa.BigInteger()
INT = sa.Integer()
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Every run passes through the indexes of queued and of running runs, and leaves dead entries there, which searches read
# past until the table is vacuumed. A fifth of a long history, PostgreSQL's default, would be too many of them.
CHANGES_OFTEN = {"autovacuum_vacuum_scale_factor": 0.02, "autovacuum_analyze_scale_factor": 0.02}
# Rows that are updated often find room for their next version in the same page.
STAYS = {"fillfactor": 70}


def key(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")


def needed(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def upgrade(step: MigrationStep) -> None:
    _nodes_and_jobs(step)
    _schedules(step)
    _runs(step)
    _attempts_and_keys(step)
    _journal(step)


def _nodes_and_jobs(step: MigrationStep) -> None:
    step.create_table(
        "node",
        sa.Column("id", key(32), primary_key=True),
        needed("name", TEXT),
        sa.Column("grant_id", sa.String(64)),
        sa.Column("token", BIG),
        needed("generation", BIG),
        needed("version", sa.String(40)),
        needed("slots", INT),
        needed("queues", TEXT),
        needed("jobs", TEXT),
        needed("started_at", BIG),
        sa.Column("left_at", BIG),
        sa.Column("dead_at", BIG),
        sa.Column("dead_why", TEXT),
        sa.Column("longest_pause_us", BIG),
        sa.Column("pauses_at", BIG),
    )
    step.create_table(
        "job",
        sa.Column("name", key(120), primary_key=True),
        needed("type", sa.String(20)),
        needed("policy", TEXT),
        needed("signature", TEXT),
        sa.Column("doc", TEXT),
        needed("generation", BIG),
        needed("seen_at", BIG),
    )


def _schedules(step: MigrationStep) -> None:
    step.create_table(
        "schedule",
        sa.Column("id", key(160), primary_key=True),
        needed("job", key(120)),
        needed("spec", TEXT),
        needed("params", TEXT),
        needed("origin", sa.String(8)),
        needed("generation", BIG),
        sa.Column("paused_at", BIG),
        sa.Column("paused_by", TEXT),
        sa.Column("pause_reason", TEXT),
        sa.Column("deleted_at", BIG),
        needed("planned_through", BIG),
        sa.Column("next_due_at", BIG),
        needed("created_at", BIG),
        needed("updated_at", BIG),
        postgresql_with=CHANGES_OFTEN | STAYS,
    )
    step.create_index("schedule", "due", "next_due_at", where="next_due_at IS NOT NULL")


def _runs(step: MigrationStep) -> None:
    step.create_table(
        "run",
        sa.Column("id", ID, sa.Identity(always=False), primary_key=True),
        needed("job", key(120)),
        needed("type", sa.String(20)),
        needed("state", key(10)),
        sa.Column("waits_for", key(8)),
        sa.Column("schedule", key(160)),
        sa.Column("origin_key", key(191)),
        sa.Column("first_due_at", BIG),
        sa.Column("due_at", BIG),
        needed("ticks", INT),
        sa.Column("window_start", BIG),
        sa.Column("window_end", BIG),
        needed("params", TEXT),
        needed("params_hash", sa.String(64)),
        sa.Column("requested_by", TEXT),
        sa.Column("reason", TEXT),
        needed("priority", sa.SmallInteger()),
        needed("queue", key(120)),
        sa.Column("exclusive_key", key(191)),
        needed("attempts", INT),
        needed("failures", INT),
        needed("crashes", INT),
        sa.Column("node", key(32)),
        needed("token", BIG),
        needed("created_at", BIG),
        needed("available_at", BIG),
        sa.Column("started_at", BIG),
        sa.Column("ended_at", BIG),
        sa.Column("cancel_requested_at", BIG),
        sa.Column("cancel_by", TEXT),
        sa.Column("error_code", TEXT),
        sa.Column("error", TEXT),
        sa.Column("result", TEXT),
        sa.Column("progress", sa.Float(53)),
        sa.Column("progress_note", TEXT),
        sa.Column("sla_at", BIG),
        sa.Column("retry_of", BIG),
        needed("generation", BIG),
        sa.Column("why", TEXT),
        sqlite_autoincrement=True,
        postgresql_with=CHANGES_OFTEN,
    )
    urgent = sa.text("priority DESC")
    waits_for_time = "state = 'waiting' AND waits_for = 'time'"
    waits_for_key = "state = 'waiting' AND waits_for = 'key'"
    step.create_index("run", "origin", "origin_key", where="origin_key IS NOT NULL", unique=True)
    step.create_index("run", "claim", "queue", urgent, "available_at", "id", where="state = 'queued'", whole=("state",))
    step.create_index("run", "time", "available_at", where=waits_for_time, whole=("state", "waits_for"))
    step.create_index("run", "key", "exclusive_key", urgent, "id", where=waits_for_key, whole=("state", "waits_for"))
    step.create_index("run", "node", "node", where="state = 'running'", whole=("state",))
    step.create_index("run", "dead", "id", where="state = 'dead'", whole=("state",))
    step.create_index("run", "held", "id", where="state = 'waiting' AND waits_for = 'person'", whole=None)
    step.create_index("run", "job", "job", "id")
    step.create_index("run", "tick", "schedule", "due_at", where="schedule IS NOT NULL")


def _attempts_and_keys(step: MigrationStep) -> None:
    step.create_table(
        "attempt",
        sa.Column("run_id", BIG, primary_key=True, autoincrement=False),
        sa.Column("number", INT, primary_key=True, autoincrement=False),
        sa.Column("node", key(32)),
        needed("token", BIG),
        sa.Column("started_at", BIG),
        needed("ended_at", BIG),
        sa.Column("took_us", BIG),
        needed("outcome", sa.String(12)),
        sa.Column("error_code", TEXT),
        sa.Column("error", TEXT),
        sa.Column("trace", TEXT),
    )
    step.create_table(
        "exclusive",
        sa.Column("key", key(191), primary_key=True),
        sa.Column("run_id", BIG),
        needed("token", BIG),
        postgresql_with=STAYS,
    )


def _journal(step: MigrationStep) -> None:
    step.create_table(
        "journal",
        sa.Column("id", ID, sa.Identity(always=False), primary_key=True),
        needed("at", BIG),
        needed("what", sa.String(60)),
        sa.Column("job", key(120)),
        sa.Column("run_id", BIG),
        sa.Column("schedule", key(160)),
        sa.Column("node", key(32)),
        sa.Column("token", BIG),
        sa.Column("by", TEXT),
        sa.Column("reason", TEXT),
        sa.Column("detail", TEXT),
        sqlite_autoincrement=True,
    )
    step.create_index("journal", "job", "job", "id", where="job IS NOT NULL")
    step.create_index("journal", "run", "run_id", where="run_id IS NOT NULL")
