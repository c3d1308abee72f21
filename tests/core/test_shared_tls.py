"""One context for all connections of PyMySQL that verify nobody; whoever has options has their own."""

from pathlib import Path
from typing import Any

from fencepost.core.shared_tls import SharedTls


class Made:
    def _create_ssl_ctx(self, options: Any) -> Any:
        return object()


class Connection(SharedTls, Made):
    pass


def test_all_connections_share_one_context() -> None:
    assert Connection()._create_ssl_ctx({}) is Connection()._create_ssl_ctx({})


def test_with_options_of_tls_nothing_is_shared(tmp_path: Path) -> None:
    options = {"ca": str(tmp_path)}
    assert Connection()._create_ssl_ctx(options) is not Connection()._create_ssl_ctx(options)


def test_connections_of_ledgers_and_locks_do() -> None:
    from fencepost.leases.stores.sql.pymysql_connection import BoundedConnection
    from fencepost.ledger.dialects.mysql import SharingConnection

    assert issubclass(SharingConnection, SharedTls)
    assert issubclass(BoundedConnection, SharedTls)
    with_options = SharingConnection(defer_connect=True, ssl={"verify_mode": "none"})
    assert with_options.ctx is not SharingConnection(defer_connect=True).ctx
