"""The first tables of effects."""

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
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Leaves room on each page, so that the next version of a frequently updated row fits on the same page.
STAYS = {"fillfactor": 70}


def key(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")


def needed(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def upgrade(step: MigrationStep) -> None:
    _fences(step)
    _keys(step)
    _checkpoints(step)
    _dead_letters(step)


def _fences(step: MigrationStep) -> None:
    step.create_table(
        "fence",
        sa.Column("key", key(191), primary_key=True),
        needed("token", BIG),
        needed("grant_id", key(191)),
        sa.Column("holder", TEXT),
        needed("raised_at", BIG),
        postgresql_with=STAYS,
    )
    # The floor exists from the start: raising a fence locks it against pruning.
    step.insert("fence", {"key": "", "token": 0, "grant_id": "", "raised_at": 0})


def _keys(step: MigrationStep) -> None:
    step.create_table(
        "idempotency_key",
        sa.Column("key", key(191), primary_key=True),
        sa.Column("payload_hash", sa.String(64)),
        sa.Column("result", TEXT),
        sa.Column("job", key(120)),
        sa.Column("run_id", BIG),
        sa.Column("token", BIG),
        needed("created_at", BIG),
        sa.Column("expires_at", BIG),
    )
    step.create_index("idempotency_key", "expiry", "expires_at", where="expires_at IS NOT NULL")


def _checkpoints(step: MigrationStep) -> None:
    step.create_table(
        "checkpoint",
        sa.Column("name", key(191), primary_key=True),
        needed("position", TEXT),
        sa.Column("shape", sa.String(64)),
        sa.Column("token", BIG),
        sa.Column("counts", TEXT),
        needed("updated_at", BIG),
        postgresql_with=STAYS,
    )


def _dead_letters(step: MigrationStep) -> None:
    step.create_table(
        "dead_letter",
        sa.Column("id", ID, sa.Identity(always=False), primary_key=True),
        sa.Column("job", key(120)),
        sa.Column("run_id", BIG),
        sa.Column("item_key", key(191)),
        sa.Column("payload", TEXT),
        sa.Column("error_code", TEXT),
        sa.Column("error", TEXT),
        sa.Column("attempt", sa.Integer()),
        needed("created_at", BIG),
        needed("state", key(16)),
        sqlite_autoincrement=True,
    )
    step.create_index("dead_letter", "job", "job", "id")
