"""Connecting to MySQL or MariaDB by PyMySQL, with a limit on every read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from fencepost.core.urls import StoreUrl
from fencepost.sql import mysql

# By this name: beside Django, with `pymysql.install_as_MySQLdb()`, `pymysql.err` becomes a copy that nobody raises.
ERRORS: tuple[type[Exception], ...] = (pymysql.MySQLError,)
_FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS

if TYPE_CHECKING:
    _Base = pymysql.connections.Connection[Cursor]  # generic only to type checkers
else:
    _Base = pymysql.connections.Connection

_shared_tls: list[Any] = []


class BoundedPyMySQL(_Base):
    """A connection that is made quickly, and whose limits can be changed from call to call.

    Unless told otherwise, PyMySQL uses TLS where the server offers it, and verifies no certificate. All the same it
    reads all certificates of the machine for that, anew for each connection. That takes tens of milliseconds of the
    processor, just when a server has come back and all connect. So connections that verify nobody share one context.
    """

    @property
    def is_mariadb(self) -> bool:
        """Whether the server says that it is MariaDB."""
        return "MariaDB" in str(getattr(self, "server_version", ""))

    def limit(self, timeout_s: float) -> None:
        """Let each read and write from now on take at most `timeout_s`. PyMySQL itself fixes that at connecting."""
        self._read_timeout = timeout_s
        self._write_timeout = timeout_s

    def _create_ssl_ctx(self, options: Any) -> Any:
        make: Any = super()._create_ssl_ctx  # type: ignore[misc]
        if options:
            return make(options)
        if not _shared_tls:
            _shared_tls.append(make(options))
        return _shared_tls[0]


def dial(url: StoreUrl, timeout_s: float) -> BoundedPyMySQL:
    """Connect. The time is given anew to each address of a name; its caller may want to bound it more."""
    return BoundedPyMySQL(**mysql.connect_options(url, timeout_s), client_flag=_FLAGS)


def greet(connection: BoundedPyMySQL, *, timeout_s: float, silence_s: float) -> None:
    """Set what every session needs, in one round trip."""
    sql = mysql.session_sql(is_mariadb=connection.is_mariadb, timeout_s=timeout_s, silence_s=silence_s)
    with connection.cursor() as cursor:
        cursor.execute(sql)
        while cursor.nextset():
            pass
