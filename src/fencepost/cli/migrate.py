"""``fencepost migrate``: bring a ledger's tables to this version, or print how somebody else can."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.drawing import print_json
from fencepost.cli.exits import Exit
from fencepost.cli.reaching import Json, LedgerUrlOption, ledger_url
from fencepost.errors import ConfigurationError

_DIALECTS = {
    "postgresql": "postgresql://host/database",
    "mysql": "mysql://host/database",
    "sqlite": "sqlite:///fencepost.db",
}


def migrate(
    ledger: LedgerUrlOption = "",
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements and change nothing.")] = False,
    dialect: Annotated[
        str, typer.Option(metavar="NAME", help="Of --sql, without a ledger: postgresql, mysql or sqlite.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Make the ledger's tables, or bring them to this version; a second time does nothing.

    Two at once are safe. On SQLite nodes do it by themselves.

    Example: fencepost migrate --ledger postgresql://db/app

    Example: fencepost migrate --sql --dialect postgresql > ledger.sql
    """
    if sql:
        return _print_sql(ledger_url(ledger) if not dialect else _url_of(dialect, ledger), as_json=as_json)
    if dialect:
        raise ConfigurationError("--dialect says for which database --sql is printed; add --sql")
    return _migrate(ledger_url(ledger), as_json=as_json)


def _print_sql(url: str, *, as_json: bool) -> int:
    from fencepost.ledger.migrations import migration_sql  # noqa: PLC0415 - SQLAlchemy and Alembic are slow to load

    script = migration_sql(url)
    if as_json:
        print_json({"sql": script})
    else:
        print(script)
    return Exit.OK


def _migrate(url: str, *, as_json: bool) -> int:
    from fencepost.ledger.ledger import open_ledger  # noqa: PLC0415
    from fencepost.ledger.migrations import current_revision, migrate  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    ledger = open_ledger(url, ThreadedRuntime())
    try:
        steps = migrate(ledger)
        revision = current_revision(ledger)
    finally:
        ledger.close()
    if as_json:
        print_json({"ledger": str(ledger.url), "revision": revision, "steps": list(steps)})
    elif steps:
        print(f"migrated {ledger.url} to revision {revision} (steps: {', '.join(steps)})")
    else:
        print(f"{ledger.url} is at revision {revision} already; nothing was done")
    return Exit.OK


def _url_of(dialect: str, ledger: str) -> str:
    if ledger:
        raise ConfigurationError("give either --ledger or --dialect: the URL says what database it is")
    if dialect not in _DIALECTS:
        raise ConfigurationError(f"there is no dialect {dialect!r}; there are {', '.join(_DIALECTS)}")
    return _DIALECTS[dialect]
