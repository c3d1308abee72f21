"""Connects to MySQL or MariaDB with PyMySQL, with a limit on every read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from fencepost.core.urls import StoreUrl
from fencepost.sql import mysql

# Not from `pymysql.err`: after `pymysql.install_as_MySQLdb()`, as with Django, that module is an unused copy.
ERRORS: tuple[type[Exception], ...] = (pymysql.MySQLError,)
_FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS

if TYPE_CHECKING:
    _Base = pymysql.connections.Connection[Cursor]  # generic only to type checkers
else:
    _Base = pymysql.connections.Connection

_shared_tls: list[Any] = []


class BoundedPyMySQL(_Base):
    """A connection that is opened quickly, and whose limits can be changed for each call.

    By default PyMySQL uses TLS if the server offers it, without verifying the certificate. Even so, it loads all
    certificates of the machine for each connection. That takes tens of milliseconds of processor time, just when a
    server is back and all clients connect. So connections that do not verify certificates share one TLS context.
    """

    @property
    def is_mariadb(self) -> bool:
        """Whether the server's version string names MariaDB."""
        return "MariaDB" in str(getattr(self, "server_version", ""))

    def limit(self, timeout_s: float) -> None:
        """Limit each following read and write to `timeout_s`. PyMySQL itself sets this only when it connects."""
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
    """Connect. The timeout applies to each address of a host name; the caller may need a stricter limit."""
    return BoundedPyMySQL(**mysql.connect_options(url, timeout_s), client_flag=_FLAGS)


def greet(connection: BoundedPyMySQL, *, timeout_s: float, silence_s: float) -> None:
    """Apply the session settings, in one round trip. If this fails, the connection is closed."""
    sql = mysql.session_sql(is_mariadb=connection.is_mariadb, timeout_s=timeout_s, silence_s=silence_s)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            while cursor.nextset():
                pass
    except BaseException:
        connection.close()
        raise
