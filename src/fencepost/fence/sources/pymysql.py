"""Connections of PyMySQL. While the transaction is open, `commit()` of the connection is refused."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import pymysql

from fencepost.fence.autocommit import IN_TRANSACTION
from fencepost.fence.sources.source import hold, in_a_transaction, release
from fencepost.fence.target import Target, target_of


class PymysqlSource:
    """A PyMySQL connection, with or without autocommit."""

    ends_with_commit = False

    def __init__(self, given: Any) -> None:
        self.given = self.raw = given
        self.target: Target = target_of(given)
        self._autocommits = False

    @property
    def place(self) -> Hashable:
        """The server, database and user."""
        host, port, socket = self.given.host, self.given.port, self.given.unix_socket
        return ("pymysql", host, port, socket, self.given.user, self.given.db)

    @property
    def is_mariadb(self) -> bool:
        """Whether the server's greeting names MariaDB."""
        return "mariadb" in str(self.given.get_server_info()).lower()

    def open(self) -> None:
        """Refuse a connection that is in a transaction."""
        if self.given.server_status & IN_TRANSACTION:
            raise in_a_transaction(self.given)
        self._autocommits = self.given.get_autocommit()
        if self._autocommits:  # otherwise statements after the user's own COMMIT could not be rolled back
            self.given.autocommit(False)

    def begin(self, isolation: str) -> None:
        """Begin. The isolation level applies to this transaction only."""
        self.target.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation.upper()}")
        self.given.begin()
        hold(self.given, "commit")

    def commit(self) -> None:
        release(self.given)
        self.given.commit()

    def roll_back(self) -> None:
        release(self.given)
        with suppress(pymysql.Error):
            self.given.rollback()

    def retold(self, error: Exception) -> Exception:
        return error

    def flush(self) -> None:
        """Do nothing: there are no pending changes."""

    def execute_outside(self, sql: str) -> None:
        """Execute a SET statement, which begins no transaction."""
        with suppress(pymysql.Error):  # a broken connection has no settings to restore
            self.target.execute(sql)

    def close(self) -> None:
        """Restore autocommit."""
        release(self.given)
        if self._autocommits:
            with suppress(pymysql.Error):
                self.given.autocommit(True)
