"""The tables of a database that receives effects, for SQLAlchemy Core, and how they are created.

::

    fence             the highest token that may write under a key; the row with the key '' is the floor, which applies
                      to keys without a row of their own
    idempotency_key   work that was done once, and its result; after `expires_at` it counts as never done
    checkpoint        progress: the position of a bulk job, the last processed number of a sequence
    dead_letter       items that could not be processed
    effects_version   the revision, for Alembic

On PostgreSQL there is also a procedure, `check_fence`, which is called together with COMMIT.

Rows are committed together with the effects. The ledger's own database has these tables too, so nothing needs to be
installed there. The migration steps are in `effects_steps/`; a test compares them with these tables on every database.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Index, Integer, MetaData, String, Table
from sqlalchemy import text as sql

from fencepost.schema.columns import (
    JOB_LENGTH,
    KEY_LENGTH,
    STAYS,
    TABLE_OPTIONS,
    identity,
    key,
    number,
    text,
)
from fencepost.schema.revisions import steps_in

if TYPE_CHECKING:
    from fencepost.schema.running import Chain

STEPS_FOLDER = Path(__file__).parent / "effects_steps"
REVISIONS = steps_in(STEPS_FOLDER / "versions")
NEWEST = REVISIONS[-1]
LABEL = "effects-"  # precedes the name of a step, to distinguish it from those of the ledger
STEPS = tuple(f"{LABEL}{revision}" for revision in REVISIONS)
FLOOR_KEY = ""


class EffectTables:
    """The tables with one prefix, and on PostgreSQL in one schema."""

    def __init__(self, prefix: str = "fencepost_", schema: str | None = None) -> None:
        self.prefix = prefix
        self.schema = schema
        self.metadata = MetaData(schema=schema)
        self.version = f"{prefix}effects_version"
        self.fence = self._table("fence", *_fence(), postgresql_with=STAYS)
        self.idempotency_key = self._table("idempotency_key", *_idempotency_key())
        self.checkpoint = self._table("checkpoint", *_checkpoint(), postgresql_with=STAYS)
        self.dead_letter = self._table("dead_letter", *_dead_letter(), sqlite_autoincrement=True)
        self._index_expiry()
        Index(f"{prefix}dead_letter_job", self.dead_letter.c.job, self.dead_letter.c.id)

    @property
    def all(self) -> tuple[Table, ...]:
        """All tables except Alembic's."""
        return (self.fence, self.idempotency_key, self.checkpoint, self.dead_letter)

    @property
    def procedures(self) -> tuple[str, ...]:
        """The procedures, on PostgreSQL."""
        return (f"{self.prefix}check_fence",)

    def name(self, table: str) -> str:
        """Return the full name of a table for handwritten SQL; prefix and schema are checked identifiers."""
        return f"{self.schema}.{self.prefix}{table}" if self.schema else f"{self.prefix}{table}"

    def chain(self) -> Chain:
        """Return the migration steps that create these tables."""
        from fencepost.schema.running import Chain  # noqa: PLC0415 - Alembic is slow to import, and rarely needed

        return Chain(STEPS_FOLDER, self.prefix, self.schema, self.version, LABEL)

    def _table(self, name: str, *columns: Column[Any], **options: Any) -> Table:
        return Table(f"{self.prefix}{name}", self.metadata, *columns, **options, **TABLE_OPTIONS)

    def _index_expiry(self) -> None:
        some = sql("expires_at IS NOT NULL")
        column = self.idempotency_key.c.expires_at
        Index(f"{self.prefix}idempotency_key_expiry", column, postgresql_where=some, sqlite_where=some)


@functools.lru_cache(maxsize=64)
def effect_tables(prefix: str, schema: str | None) -> EffectTables:
    """Return the tables with a prefix. Results are cached."""
    return EffectTables(prefix, schema)


def _fence() -> tuple[Column[Any], ...]:
    return (
        Column("key", key(KEY_LENGTH), primary_key=True),
        Column("token", number(), nullable=False),
        Column("grant_id", key(KEY_LENGTH), nullable=False),
        Column("holder", text()),
        Column("raised_at", number(), nullable=False),
    )


def _idempotency_key() -> tuple[Column[Any], ...]:
    return (
        Column("key", key(KEY_LENGTH), primary_key=True),
        Column("payload_hash", String(64)),
        Column("result", text()),
        Column("job", key(JOB_LENGTH)),
        Column("run_id", number()),
        Column("token", number()),
        Column("created_at", number(), nullable=False),
        Column("expires_at", number()),
    )


def _checkpoint() -> tuple[Column[Any], ...]:
    return (
        Column("name", key(KEY_LENGTH), primary_key=True),
        Column("position", text(), nullable=False),
        Column("shape", String(64)),
        Column("token", number()),
        Column("counts", text()),
        Column("updated_at", number(), nullable=False),
    )


def _dead_letter() -> tuple[Column[Any], ...]:
    return (
        identity(),
        Column("job", key(JOB_LENGTH)),
        Column("run_id", number()),
        Column("item_key", key(KEY_LENGTH)),
        Column("payload", text()),
        Column("error_code", text()),
        Column("error", text()),
        Column("attempt", Integer()),
        Column("created_at", number(), nullable=False),
        Column("state", key(16), nullable=False),
    )
