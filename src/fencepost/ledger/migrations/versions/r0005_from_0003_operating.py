"""Tables for teams that operate jobs together: accounts, permissions, audit, logs of runs, figures, pauses.

- `account`, `permission`, `login`, `api_token`: who may do what. Passwords are hashed with Argon2id, secrets of logins
  and API tokens with SHA-256. `permission.job` is an exact name; the empty name stands for all jobs.
- `audit`, `audit_head`: the chain of what people did (`fencepost.core.audit`). `audit_head` has one row, which is
  locked as the last step of a transaction. `floor_n` and `floor_hash`: the last entry that was pruned.
- `answer`: the responses to requests of the REST interface with an `Idempotency-Key`, for a day.
- `log_chunk`: the output of runs, one second per row, compressed.
- `run_search`: declared search keys of runs, over all of history.
- `job_hour`: what each node counted of each job in each hour.
- `acknowledged`: what a person has acknowledged, so that it is no longer shown as new.
- `pause`: the queues that a person has paused; the empty name stands for everything.
- `schedule.paused_until`: when the pause of a schedule ends by itself. `job.parent`: the job that a part or a replay
  belongs to. `node.drain_asked_at`, `node.drain_by`: when, and by whom, a node was asked to take no more runs.

No new index on `run`: each would cost time at every claim and every finish. Versions that know step 0003 can keep
working with these tables: every new column may be NULL.
"""

from __future__ import annotations

import sqlalchemy as sa

from fencepost.core.audit import FIRST
from fencepost.schema.columns import key, number, text
from fencepost.schema.step import MigrationStep

revision = "0005_from_0003"
down_revision = "0004_from_0003"
branch_labels = None
depends_on = None


def upgrade(step: MigrationStep) -> None:
    _access(step)
    _audit(step)
    _runs(step)
    step.create_table(
        "pause",
        sa.Column("queue", key(120), primary_key=True),
        sa.Column("paused_at", number(), nullable=False),
        sa.Column("until", number()),
        sa.Column("by", text(), nullable=False),
        sa.Column("reason", text()),
    )
    step.add_column("schedule", sa.Column("paused_until", number()))
    step.add_column("job", sa.Column("parent", key(120)))
    step.add_column("node", sa.Column("drain_asked_at", number()))
    step.add_column("node", sa.Column("drain_by", text()))


def _access(step: MigrationStep) -> None:
    step.create_table(
        "account",
        sa.Column("name", key(120), primary_key=True),
        sa.Column("password", text()),
        sa.Column("created_at", number(), nullable=False),
        sa.Column("created_by", text(), nullable=False),
        sa.Column("changed_at", number(), nullable=False),
        sa.Column("disabled_at", number()),
    )
    step.create_table(
        "permission",
        sa.Column("principal", key(130), primary_key=True),
        sa.Column("job", key(120), primary_key=True),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("given_at", number(), nullable=False),
        sa.Column("given_by", text(), nullable=False),
    )
    step.create_table(
        "login",
        sa.Column("secret_hash", key(64), primary_key=True),
        sa.Column("principal", key(130), nullable=False),
        sa.Column("how", sa.String(20), nullable=False),
        sa.Column("address", text()),
        sa.Column("created_at", number(), nullable=False),
        sa.Column("seen_at", number(), nullable=False),
        sa.Column("expires_at", number(), nullable=False),
        sa.Column("revoked_at", number()),
    )
    step.create_index("login", "principal", "principal")
    step.create_table(
        "api_token",
        sa.Column("id", key(32), primary_key=True),
        sa.Column("secret_hash", key(64), nullable=False),
        sa.Column("name", text(), nullable=False),
        sa.Column("created_at", number(), nullable=False),
        sa.Column("created_by", text(), nullable=False),
        sa.Column("expires_at", number(), nullable=False),
        sa.Column("used_at", number()),
        sa.Column("revoked_at", number()),
    )
    step.create_index("api_token", "secret", "secret_hash", unique=True)
    step.create_table(
        "answer",
        sa.Column("principal", key(130), primary_key=True),
        sa.Column("request_key", key(60), primary_key=True),
        sa.Column("path", text(), nullable=False),
        sa.Column("body_hash", key(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", text(), nullable=False),
        sa.Column("at", number(), nullable=False),
    )
    step.create_index("answer", "at", "at")


def _audit(step: MigrationStep) -> None:
    step.create_table(
        "audit",
        sa.Column("n", number(), primary_key=True, autoincrement=False),
        sa.Column("entry", text(), nullable=False),
        sa.Column("prev", key(64), nullable=False),
        sa.Column("hash", key(64), nullable=False),
        sa.Column("at", number(), nullable=False),
        sa.Column("who", key(160), nullable=False),
        sa.Column("act", key(60), nullable=False),
        sa.Column("job", key(120)),
        sa.Column("run_id", number()),
    )
    step.create_index("audit", "job", "job", "n", where="job IS NOT NULL")
    step.create_index("audit", "who", "who", "n")
    step.create_index("audit", "run", "run_id", "n", where="run_id IS NOT NULL")
    step.create_table(
        "audit_head",
        sa.Column("only", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("n", number(), nullable=False),
        sa.Column("hash", key(64), nullable=False),
        sa.Column("floor_n", number(), nullable=False),
        sa.Column("floor_hash", key(64), nullable=False),
    )
    step.insert("audit_head", {"only": 1, "n": 0, "hash": FIRST, "floor_n": 0, "floor_hash": FIRST})


def _runs(step: MigrationStep) -> None:
    step.create_table(
        "log_chunk",
        sa.Column("run_id", number(), primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("first_at", number(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("dropped", number(), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
    )
    step.create_table(
        "run_search",
        sa.Column("name", key(60), primary_key=True),
        sa.Column("value", key(120), primary_key=True),
        sa.Column("run_id", number(), primary_key=True, autoincrement=False),
    )
    step.create_index("run_search", "run", "run_id")
    step.create_table(
        "job_hour",
        sa.Column("job", key(120), primary_key=True),
        sa.Column("hour", number(), primary_key=True, autoincrement=False),
        sa.Column("node", key(32), primary_key=True),
        sa.Column("outcomes", text(), nullable=False),
        sa.Column("histogram", text(), nullable=False),
    )
    step.create_index("job_hour", "hour", "hour")
    step.create_table(
        "acknowledged",
        sa.Column("what", key(40), primary_key=True),
        sa.Column("id", key(160), primary_key=True),
        sa.Column("by", text(), nullable=False),
        sa.Column("at", number(), nullable=False),
        sa.Column("until", number()),
        sa.Column("note", text()),
    )
