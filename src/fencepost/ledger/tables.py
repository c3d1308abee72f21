"""The ledger's tables, as defined with SQLAlchemy Core.

All instants are whole microseconds since 1970 in UTC, by the clock of the database (on SQLite, of the machine). JSON is
stored as text, because only Python writes and reads it. A token is the number by which the writes of a run are
compared.

These are the current tables. The steps in `ledger/migrations` lead there; a test compares the two on every database.

What may surprise:

- A `waiting` run says what it waits for (`waits_for`: key, time, node or person); all others have NULL there.
- The current attempt is in the row of the run (`attempts` is its number); a row of `attempt` is written when it ends.
- `exclusive` has a row for every exclusive key ever used. `run_id` NULL means free; `token` never falls.
- `schedule.planned_through` only rises, even if a schedule is deleted (which leaves a tombstone) and created again.
- `schedule.no_node_since` is set while no living node has the schedule's job: then it is not planned (`serving`).
  Older versions do not know that and search by `next_due_at` alone, so there are two indexes of it.
- `identity` has one row (`only` is 1): the random name of this ledger, to check whether a connection leads here;
  what distinguishes its database from a restored or copied one (`evidence`); and until when nodes were alive that do
  not use the name (`naming`). The tables that receive effects (`fencepost.schema.effects`) are beside these.
- Indexes are partial where the database supports that: each one costs time at every claim and every finish.
- Keys are compared byte by byte, in the same order by every database and by Python.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy import Column, Float, Index, Integer, MetaData, SmallInteger, String, Table, text
from sqlalchemy.engine import Dialect

from fencepost.core.identity import LONGEST_SCHEDULE_ID
from fencepost.ledger.claim_order import CLAIM_ORDER
from fencepost.ledger.operating_tables import OPERATING
from fencepost.ledger.urls import LedgerUrl
from fencepost.schema.columns import JOB_LENGTH, KEY_LENGTH, MYSQL_KINDS, STAYS, TABLE_OPTIONS
from fencepost.schema.columns import identity as _identity
from fencepost.schema.columns import key as _key
from fencepost.schema.columns import number as _number
from fencepost.schema.columns import text as _text

SCHEDULE_LENGTH = LONGEST_SCHEDULE_ID  # to change it takes a migration; what is longer is refused before it gets here
NODE_LENGTH = 32  # hexadecimal digits of 128 random bits; fingerprints have as many
# Searches read past dead index entries until they are vacuumed. PostgreSQL's default, a fifth of a table, is too late.
_CHANGES_OFTEN = {"autovacuum_vacuum_scale_factor": 0.02, "autovacuum_analyze_scale_factor": 0.02}


def _has_whole_indexes(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name in MYSQL_KINDS


def _has_partial_indexes(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name not in MYSQL_KINDS


class Tables:
    """The tables with one prefix; on PostgreSQL optionally in a schema. `version` is the table of Alembic."""

    def __init__(self, prefix: str = "fencepost_", schema: str | None = None) -> None:
        self.prefix = prefix
        self.schema = schema
        self.metadata = MetaData(schema=schema)
        self.version = f"{prefix}version"
        self.node = self._table("node", *_node())
        self.job = self._table("job", *_job())
        self.schedule = self._table("schedule", *_schedule(), postgresql_with=_CHANGES_OFTEN | STAYS)
        self.run = self._table("run", *_run(), sqlite_autoincrement=True, postgresql_with=_CHANGES_OFTEN)
        self.attempt = self._table("attempt", *_attempt())
        self.exclusive = self._table("exclusive", *_exclusive(), postgresql_with=STAYS)
        self.journal = self._table("journal", *_journal(), sqlite_autoincrement=True)
        self.identity = self._table("identity", *_the_identity())
        self.deploy = self._table("deploy", *_deploy())
        self.operating = {name: self._table(name, *columns()) for name, columns in OPERATING.items()}
        self._index_schedules()
        self._index_runs()
        self._index_journal()
        self._index_operating()

    @staticmethod
    def of(url: LedgerUrl) -> Tables:
        """Return the tables of `url`, cached."""
        return _tables(url.prefix, url.schema)

    @property
    def all(self) -> tuple[Table, ...]:
        """Every table except that of Alembic."""
        return (
            self.node,
            self.job,
            self.schedule,
            self.run,
            self.attempt,
            self.exclusive,
            self.journal,
            self.identity,
            self.deploy,
            *self.operating.values(),
        )

    def name(self, table: str) -> str:
        """Return the full name of a table for handwritten SQL. Prefix and schema are validated identifiers."""
        return f"{self.schema}.{self.prefix}{table}" if self.schema else f"{self.prefix}{table}"

    def _table(self, name: str, *columns: Column[Any], **options: Any) -> Table:
        return Table(
            f"{self.prefix}{name}",
            self.metadata,
            *columns,
            **options,
            **TABLE_OPTIONS,
        )

    def _index_schedules(self) -> None:
        c = self.schedule.c
        self._index("schedule_due", c.next_due_at, where="next_due_at IS NOT NULL")
        self._index(
            "schedule_ready",
            c.next_due_at,
            where="next_due_at IS NOT NULL AND no_node_since IS NULL",
            whole=(c.no_node_since,),
        )
        self._index("schedule_unserved", c.id, where="no_node_since IS NOT NULL", whole=None)

    def _index_runs(self) -> None:
        c = self.run.c
        claimed = [c[each[1:]].desc() if each.startswith("-") else c[each] for each in CLAIM_ORDER]
        self._index("run_origin", c.origin_key, where="origin_key IS NOT NULL", unique=True)
        self._index("run_claim", c.queue, *claimed, where="state = 'queued'", whole=(c.state,))
        self._index(
            "run_time", c.available_at, where="state = 'waiting' AND waits_for = 'time'", whole=(c.state, c.waits_for)
        )
        self._index(
            "run_key",
            c.exclusive_key,
            c.priority.desc(),
            c.id,
            where="state = 'waiting' AND waits_for = 'key'",
            whole=(c.state, c.waits_for),
        )
        self._index("run_node", c.node, where="state = 'running'", whole=(c.state,))
        self._index("run_dead", c.id, where="state = 'dead'", whole=(c.state,))
        self._index("run_parked", c.job, c.queue, c.id, where="state = 'waiting' AND waits_for = 'node'", whole=None)
        self._index("run_held", c.id, where="state = 'waiting' AND waits_for = 'person'", whole=None)
        self._index("run_job", c.job, c.id)
        self._index("run_repetition", c.retry_of, where="retry_of IS NOT NULL")
        self._index("run_root", c.root, where="root IS NOT NULL")
        self._index("run_tick", c.schedule, c.due_at, where="schedule IS NOT NULL")

    def _index_journal(self) -> None:
        c = self.journal.c
        self._index("journal_job", c.job, c.id, where="job IS NOT NULL")
        self._index("journal_run", c.run_id, where="run_id IS NOT NULL")

    def _index_operating(self) -> None:
        audit, search = self.operating["audit"].c, self.operating["run_search"].c
        self._index("audit_job", audit.job, audit.n, where="job IS NOT NULL")
        self._index("audit_who", audit.who, audit.n)
        self._index("audit_run", audit.run_id, audit.n, where="run_id IS NOT NULL")
        self._index("login_principal", self.operating["login"].c.principal)
        self._index("api_token_secret", self.operating["api_token"].c.secret_hash, unique=True)
        self._index("answer_at", self.operating["answer"].c.at)
        self._index("run_search_run", search.run_id)
        self._index("job_hour_hour", self.operating["job_hour"].c.hour)

    def _index(
        self, name: str, *columns: Any, where: str = "", unique: bool = False, whole: tuple[Any, ...] | None = ()
    ) -> None:
        """Create an index, partial where the database supports it.

        On MySQL, which has no partial indexes, the columns of `whole` come first; None: no such index is needed there.
        """
        full = f"{self.prefix}{name}"
        if not where:
            Index(full, *columns, unique=unique)
            return
        partial = text(where)
        here = Index(full, *columns, unique=unique, postgresql_where=partial, sqlite_where=partial)
        here.ddl_if(callable_=_has_partial_indexes)
        if whole is not None:
            Index(full, *whole, *columns, unique=unique).ddl_if(callable_=_has_whole_indexes)


@functools.lru_cache(maxsize=64)
def _tables(prefix: str, schema: str | None) -> Tables:
    return Tables(prefix, schema)


def _node() -> tuple[Column[Any], ...]:
    return (
        Column("id", _key(NODE_LENGTH), primary_key=True),
        Column("name", _text(), nullable=False),
        Column("grant_id", String(64)),
        Column("token", _number()),
        Column("generation", _number(), nullable=False),
        Column("version", String(40), nullable=False),
        Column("slots", Integer(), nullable=False),
        Column("queues", _text(), nullable=False),
        Column("jobs", _text(), nullable=False),
        Column("started_at", _number(), nullable=False),
        Column("left_at", _number()),
        Column("dead_at", _number()),
        Column("dead_why", _text()),
        Column("longest_pause_us", _number()),
        Column("pauses_at", _number()),
        Column("draining_at", _number()),
        Column("fingerprint", _key(NODE_LENGTH)),
        Column("drain_asked_at", _number()),
        Column("drain_by", _text()),
    )


def _job() -> tuple[Column[Any], ...]:
    return (
        Column("name", _key(JOB_LENGTH), primary_key=True),
        Column("type", String(20), nullable=False),
        Column("policy", _text(), nullable=False),
        Column("signature", _text(), nullable=False),
        Column("doc", _text()),
        Column("generation", _number(), nullable=False),
        Column("seen_at", _number(), nullable=False),
        Column("parent", _key(JOB_LENGTH)),
    )


def _schedule() -> tuple[Column[Any], ...]:
    return (
        Column("id", _key(SCHEDULE_LENGTH), primary_key=True),
        Column("job", _key(JOB_LENGTH), nullable=False),
        Column("spec", _text(), nullable=False),
        Column("params", _text(), nullable=False),
        Column("origin", String(8), nullable=False),
        Column("generation", _number(), nullable=False),
        Column("paused_at", _number()),
        Column("paused_by", _text()),
        Column("pause_reason", _text()),
        Column("deleted_at", _number()),
        Column("planned_through", _number(), nullable=False),
        Column("next_due_at", _number()),
        Column("created_at", _number(), nullable=False),
        Column("updated_at", _number(), nullable=False),
        Column("no_node_since", _number()),
        Column("paused_until", _number()),
    )


def _run() -> tuple[Column[Any], ...]:
    return (
        _identity(),
        Column("job", _key(JOB_LENGTH), nullable=False),
        Column("type", String(20), nullable=False),
        Column("state", _key(10), nullable=False),
        Column("waits_for", _key(8)),
        Column("schedule", _key(SCHEDULE_LENGTH)),
        Column("origin_key", _key(KEY_LENGTH)),
        Column("first_due_at", _number()),
        Column("due_at", _number()),
        Column("ticks", Integer(), nullable=False),
        Column("window_start", _number()),
        Column("window_end", _number()),
        Column("params", _text(), nullable=False),
        Column("params_hash", String(64), nullable=False),
        Column("requested_by", _text()),
        Column("reason", _text()),
        Column("priority", SmallInteger(), nullable=False),
        Column("queue", _key(JOB_LENGTH), nullable=False),
        Column("exclusive_key", _key(KEY_LENGTH)),
        Column("attempts", Integer(), nullable=False),
        Column("failures", Integer(), nullable=False),
        Column("crashes", Integer(), nullable=False),
        Column("node", _key(NODE_LENGTH)),
        Column("token", _number(), nullable=False),
        Column("created_at", _number(), nullable=False),
        Column("available_at", _number(), nullable=False),
        Column("started_at", _number()),
        Column("ended_at", _number()),
        Column("cancel_requested_at", _number()),
        Column("cancel_by", _text()),
        Column("error_code", _text()),
        Column("error", _text()),
        Column("result", _text()),
        Column("progress", Float(53)),
        Column("progress_note", _text()),
        Column("sla_at", _number()),
        Column("retry_of", _number()),
        Column("generation", _number(), nullable=False),
        Column("why", _text()),
        Column("root", String(64)),
    )


def _attempt() -> tuple[Column[Any], ...]:
    return (
        Column("run_id", _number(), primary_key=True, autoincrement=False),
        Column("number", Integer(), primary_key=True, autoincrement=False),
        Column("node", _key(NODE_LENGTH)),
        Column("token", _number(), nullable=False),
        Column("started_at", _number()),
        Column("ended_at", _number(), nullable=False),
        Column("took_us", _number()),
        Column("outcome", String(12), nullable=False),
        Column("error_code", _text()),
        Column("error", _text()),
        Column("trace", _text()),
    )


def _exclusive() -> tuple[Column[Any], ...]:
    return (
        Column("key", _key(KEY_LENGTH), primary_key=True),
        Column("run_id", _number()),
        Column("token", _number(), nullable=False),
    )


def _journal() -> tuple[Column[Any], ...]:
    return (
        _identity(),
        Column("at", _number(), nullable=False),
        Column("what", String(60), nullable=False),
        Column("job", _key(JOB_LENGTH)),
        Column("run_id", _number()),
        Column("schedule", _key(SCHEDULE_LENGTH)),
        Column("node", _key(NODE_LENGTH)),
        Column("token", _number()),
        Column("by", _text()),
        Column("reason", _text()),
        Column("detail", _text()),
    )


def _deploy() -> tuple[Column[Any], ...]:
    return (
        Column("fingerprint", _key(NODE_LENGTH), primary_key=True),
        Column("first_seen_at", _number(), nullable=False),
    )


def _the_identity() -> tuple[Column[Any], ...]:
    return (
        Column("only", Integer(), primary_key=True, autoincrement=False),
        Column("id", String(64), nullable=False),
        Column("evidence", _text()),
        Column("era", _number()),
        Column("beat_at", _number()),
        Column("held_why", _text()),
        Column("nameless_until", _number()),
    )
