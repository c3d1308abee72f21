"""The effects of chaos: each is written with a number that rises in the order of commits.

The row of the counter is locked by its change until the transaction ends, so the first to commit has the smaller
number: a stale write after that of its successor is visible. It is the last statement of a transaction, so
that no writer waits for one that is stopped in the middle of its work.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, func, select

from fencepost.core.fencing import FencingToken
from fencepost.ledger.urls import LedgerUrl
from fencepost.proof.evidence import Effect

_LENGTH = 200  # characters; a key of the ledger has 191 at most (`LONGEST_KEY`)


class ChaosTables:
    """The two tables of effects, in the database of a ledger and under its prefix."""

    def __init__(self, place: LedgerUrl) -> None:
        self._tables = MetaData(schema=place.schema)
        self._counter = Table(
            f"{place.prefix}chaos_counter",
            self._tables,
            Column("resource", String(_LENGTH), primary_key=True),
            Column("n", BigInteger, nullable=False),
        )
        self._effect = Table(
            f"{place.prefix}chaos_effect",
            self._tables,
            Column("resource", String(_LENGTH), primary_key=True),
            Column("n", BigInteger, primary_key=True, autoincrement=False),
            Column("work", String(_LENGTH), nullable=False),
            Column("token", BigInteger, nullable=False),
            Column("grant_id", String(_LENGTH), nullable=False),
            Column("run_id", BigInteger),
        )

    def make(self, engine: Engine) -> None:
        """Make the tables."""
        self._tables.create_all(engine)

    def write(self, tx: Connection, fencing: FencingToken, work: str, run_id: int | None = None) -> None:
        """Write that `work` was done."""
        effect = {"work": work, "token": fencing.token, "grant_id": fencing.grant_id, "run_id": run_id}
        tx.execute(self._effect.insert().values(resource=fencing.key, n=self._next(tx, fencing.key), **effect))

    def has(self, tx: Connection, fencing: FencingToken, work: str) -> bool:
        """Whether `work` is on record already."""
        c = self._effect.c
        found = select(func.count()).select_from(self._effect).where(c.resource == fencing.key, c.work == work)
        return bool(tx.execute(found).scalar_one())

    def read(self, engine: Engine) -> tuple[Effect, ...]:
        """Return all of them; those of one resource in the order of their commits."""
        c = self._effect.c
        with engine.connect() as connection:
            rows = connection.execute(
                select(c.resource, c.work, c.token, c.grant_id, c.run_id).order_by(c.resource, c.n)
            ).all()
        return tuple(Effect(*row) for row in rows)

    def _next(self, tx: Connection, resource: str) -> int:
        c = self._counter.c
        raised = self._counter.update().where(c.resource == resource).values(n=c.n + 1)
        if not tx.execute(raised).rowcount:
            tx.execute(self._counter.insert().values(resource=resource, n=1))
        n: int = tx.execute(select(c.n).where(c.resource == resource)).scalar_one()
        return n
