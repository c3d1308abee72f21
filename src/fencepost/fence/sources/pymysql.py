"""Connections of PyMySQL. While the transaction is open, `commit` is taken away from the connection."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import pymysql

from fencepost.fence.autocommit import IN_TRANSACTION
from fencepost.fence.sources.source import hold, in_a_transaction, release
from fencepost.fence.target import Target, target_of


class PymysqlSource:
    """A connection of PyMySQL, autocommit or not."""

    ends_with_commit = False

    def __init__(self, given: Any) -> None:
        self.given = self.raw = given
        self.target: Target = target_of(given)
        self._autocommits = False

    @property
    def place(self) -> Hashable:
        """Where it is connected to, and as whom."""
        host, port, socket = self.given.host, self.given.port, self.given.unix_socket
        return ("pymysql", host, port, socket, self.given.user, self.given.db)

    @property
    def is_mariadb(self) -> bool:
        """As the server greeted us."""
        return "mariadb" in str(self.given.get_server_info()).lower()

    def open(self) -> None:
        """Refuse one that is in a transaction."""
        if self.given.server_status & IN_TRANSACTION:
            raise in_a_transaction(self.given)
        self._autocommits = self.given.get_autocommit()
        if self._autocommits:  # else what follows somebody's own COMMIT could not be rolled back
            self.given.autocommit(False)

    def begin(self, isolation: str) -> None:
        """Begin; the isolation is of this transaction alone."""
        self.target.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation.upper()}")
        self.given.begin()
        hold(self.given, "commit")

    def commit(self) -> None:
        """Commit."""
        release(self.given)
        self.given.commit()

    def roll_back(self) -> None:
        """Roll back."""
        release(self.given)
        with suppress(pymysql.Error):
            self.given.rollback()

    def retold(self, error: Exception) -> Exception:
        """It is PyMySQL's."""
        return error

    def flush(self) -> None:
        """Nothing waits to be sent."""

    def execute_outside(self, sql: str) -> None:
        """Set something: that begins no transaction."""
        with suppress(pymysql.Error):  # a connection that is broken keeps nothing
            self.target.execute(sql)

    def close(self) -> None:
        """Put back what was changed."""
        release(self.given)
        if self._autocommits:
            with suppress(pymysql.Error):
                self.given.autocommit(True)
