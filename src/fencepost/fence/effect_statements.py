"""Our statements on the effect tables, in the caller's transaction. Keys, sequences and checkpoints use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.errors import ConfigurationError, EffectsMissing
from fencepost.fence.autocommit import commits_at_once
from fencepost.fence.target import Answer, Target, described, target_of
from fencepost.fence.writer import Writer
from fencepost.sql.spelling import SPELLING
from fencepost.sql.troubles import NO_TABLES, trouble_of

_URLS = {"postgresql": "postgresql://host/database", "mysql": "mysql://host/database", "sqlite": "sqlite:///file.db"}


class EffectStatements:
    """The effect tables, accessed through the caller's connection. It never begins, commits or rolls back."""

    def __init__(self, tx: Any, writer: Writer) -> None:
        self._target: Target = target_of(tx, wall_us=writer.wall_us)
        self._place = writer.place
        self.kind = self._target.kind
        self.writer = writer
        # SQLite has no clock of its own. There, `now` is a number, which is put into the SQL directly.
        self.spelling = SPELLING[self.kind]
        self.now = self.spelling.now_us or str(self._target.now_us())
        self.key = self.spelling.key
        self.past_snapshot = self.spelling.past_snapshot
        _refuse_autocommit(self._target.given)

    def table(self, name: str) -> str:
        return self._place.name(name)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Answer:
        """Execute a statement. If the tables are missing, the error names the command that creates them."""
        try:
            return self._target.execute(sql, parameters)
        except Exception as error:
            if trouble_of(error) not in NO_TABLES:
                raise
            raise EffectsMissing(
                f"the database of this transaction ({described(self._target.given)}) has no effect tables "
                f"({self.table('fence')} and others), so it cannot record that an effect happened; "
                f"run: fencepost effects install '{_URLS[self.kind]}{self._place.options}'"
            ) from error

    def insert(self, table: str, values: dict[str, tuple[str, list[Any]]]) -> bool:
        """Insert a row unless its key exists; False if it does. Waits for another transaction that inserts that key.

        `values` maps each column to the SQL and the parameters of its value.
        """
        into = f"INTO {self.table(table)} ({', '.join(values)}) VALUES ({', '.join(sql for sql, _ in values.values())})"
        parameters = [each for _, several in values.values() for each in several]
        return self.execute(self.spelling.insert_if_absent(into), parameters).count == 1


def _refuse_autocommit(given: Any) -> None:
    """Refuse a connection on which our row would be committed before its effect."""
    if commits_at_once(given):
        raise ConfigurationError(
            f"{described(given)} is in autocommit mode and has no transaction open, so the key would not commit "
            "together with its effect; begin a transaction first"
        )
