"""Connections of PyMySQL that verify nobody share one TLS context; those with options of TLS have their own."""

from fencepost.sql.pymysql_link import BoundedPyMySQL


def unconnected(**options: object) -> BoundedPyMySQL:
    return BoundedPyMySQL(defer_connect=True, **options)


def test_connections_that_verify_nobody_share_one_context() -> None:
    assert unconnected().ctx is unconnected().ctx is not None


def test_connections_with_options_of_tls_share_nothing() -> None:
    options = {"verify_mode": "none"}
    first, second = unconnected(ssl=options), unconnected(ssl=options)
    assert first.ctx is not second.ctx
    assert first.ctx is not unconnected().ctx
