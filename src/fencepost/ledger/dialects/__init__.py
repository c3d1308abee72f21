"""The differences between databases. `dialect_for` picks a dialect; drivers are imported only when needed."""

from __future__ import annotations

import importlib

from fencepost.core.runtime import Runtime
from fencepost.errors import MissingExtra
from fencepost.ledger.dialects.dialect import Cursor, DbapiConnection, Dialect, Row
from fencepost.ledger.urls import LedgerUrl

__all__ = ["Cursor", "DbapiConnection", "Dialect", "Row", "dialect_for"]

_MODULES = {
    "sqlite": ("sqlite", "SqliteDialect"),
    "postgresql": ("postgres", "PostgresDialect"),
    "mysql": ("mysql", "MysqlDialect"),
}


def dialect_for(url: LedgerUrl, runtime: Runtime) -> Dialect:
    """Return the dialect of a URL's database, without connecting."""
    module, name = _MODULES[url.kind]
    try:
        dialect: type[Dialect] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fencepost"):
            raise
        raise MissingExtra(
            f"{url.store.scheme}:// needs the package {error.name!r}: pip install './fencepost[{module}]' from a clone"
        ) from None
    return dialect(url, runtime)
