"""Adapters that open fenced transactions on the user's connections: one module for each library."""

from __future__ import annotations

from typing import Any

from fencepost.fence.sources.source import Source
from fencepost.fence.target import TAKEN, described, family_of, refuse_async


def source_of(given: Any) -> Source:
    """Return the adapter for `given`. Raise `TypeError`, with the supported types, if there is none."""
    refuse_async(given)
    match family_of(given):
        case "sqlalchemy":
            from fencepost.fence.sources.sqlalchemy import sqlalchemy_source  # noqa: PLC0415 - drivers may be missing

            return sqlalchemy_source(given)
        case "psycopg" if hasattr(given, "transaction"):
            from fencepost.fence.sources.psycopg import PsycopgSource  # noqa: PLC0415

            return PsycopgSource(given)
        case "pymysql" if hasattr(given, "get_autocommit"):
            from fencepost.fence.sources.pymysql import PymysqlSource  # noqa: PLC0415

            return PymysqlSource(given)
        case "sqlite3" if hasattr(given, "in_transaction"):
            from fencepost.fence.sources.sqlite3 import SqliteSource  # noqa: PLC0415

            return SqliteSource(given)
        case "django":
            from fencepost.fence.sources.django import DjangoSource  # noqa: PLC0415

            return DjangoSource(given)
    raise TypeError(
        f"a fenced transaction cannot be opened on {described(given)}; supported are a SQLAlchemy Engine or "
        f"Connection, a Session or a sessionmaker, and {TAKEN}"
    )
