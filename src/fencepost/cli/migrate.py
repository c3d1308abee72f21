"""``fencepost migrate``: bring a ledger's tables to this version, or print the statements that do.

The leases of its nodes have tables of their own, in the same database (on SQLite in a file beside it). They are made
here too, so that the user who runs nodes needs no right to make tables.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import Json, LedgerUrlOption, ledger_url
from fencepost.cli.output import print_json, visible
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.ledger.ledger import Ledger

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
    contract: Annotated[
        bool, typer.Option("--contract", help="Also remove what no version in use needs any more.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make the tables of the ledger and of its leases, or bring them to this version. A second call does nothing.

    Two concurrent calls are safe. On SQLite, nodes do it automatically. Nodes of the previous version keep working.

    --contract: refused while a living node needs what is removed; the message names it.

    Example: fencepost migrate --ledger postgresql://db/app

    Example: fencepost migrate --contract --ledger postgresql://db/app

    Example: fencepost migrate --sql --dialect postgresql > ledger.sql
    """
    if sql:
        if contract:
            raise ConfigurationError("--sql prints all steps for a new database; give --contract without it")
        return _print_sql(ledger_url(ledger) if not dialect else _url_of(dialect, ledger), as_json=as_json)
    if dialect:
        raise ConfigurationError("--dialect says for which database --sql is printed; add --sql")
    return _migrate(ledger_url(ledger), contract=contract, as_json=as_json)


def _print_sql(url: str, *, as_json: bool) -> int:
    from fencepost.ledger.migrations import migration_sql  # noqa: PLC0415 - SQLAlchemy and Alembic are slow to load

    script = f"{migration_sql(url).rstrip()}\n\n{_lease_sql(url)}"
    if as_json:
        print_json({"sql": script})
    else:
        print(script)
    return Exit.OK


def _lease_sql(url: str) -> str:
    """Return the statements for the tables of leases. This needs no driver."""
    from fencepost.core.urls import StoreUrl  # noqa: PLC0415
    from fencepost.leases.stores.sql import schema  # noqa: PLC0415
    from fencepost.leases.stores.sql.options import LeaseTables  # noqa: PLC0415
    from fencepost.ledger.urls import LedgerUrl  # noqa: PLC0415

    ledger_url = LedgerUrl.parse(url)
    if ledger_url.is_file:
        return "-- The leases of nodes are in a file beside this one, which nodes make by themselves."
    spell = schema.postgres if ledger_url.kind == "postgresql" else schema.mysql
    statements = spell(LeaseTables.of(StoreUrl.parse(ledger_url.lease_url())))
    return f"-- The leases of nodes.\n{schema.text(statements)}".rstrip()


def _migrate(url: str, *, contract: bool, as_json: bool) -> int:
    from fencepost.leases.schemes import try_store  # noqa: PLC0415
    from fencepost.ledger.ledger import open_ledger  # noqa: PLC0415
    from fencepost.ledger.migrations import current_revision, migrate  # noqa: PLC0415
    from fencepost.threaded import ThreadedRuntime  # noqa: PLC0415

    ledger = open_ledger(url, ThreadedRuntime())
    try:
        steps = migrate(ledger, contract=contract)
        revision = current_revision(ledger)
        try_store(
            ledger.url.lease_url(), ledger.runtime
        )  # opening it makes the tables of leases, where they are missing
        left, late = _left_to_contract(revision), _joined_meanwhile(ledger, revision)
    finally:
        ledger.close()
    if as_json:
        print_json({"ledger": str(ledger.url), "revision": revision, "steps": list(steps), "to_contract": list(left)})
    elif steps:
        print(f"migrated {ledger.url} to revision {revision} (steps: {', '.join(steps)})")
    else:
        print(f"{ledger.url} is at revision {revision} already; nothing was done")
    if left and not as_json:
        print(f"when no older version is in use any more, run: fencepost migrate --contract --ledger '{ledger.url}'")
    for sentence in late:
        print(visible(sentence), file=sys.stderr)
    return Exit.OK


def _left_to_contract(revision: str | None) -> tuple[str, ...]:
    from fencepost.ledger.migrations import REVISIONS  # noqa: PLC0415
    from fencepost.schema.revisions import missing_steps  # noqa: PLC0415

    return missing_steps(revision, REVISIONS)


def _joined_meanwhile(ledger: Ledger, revision: str | None) -> list[str]:
    """Return warnings about nodes that cannot use the tables any more: they joined during the removal."""
    from fencepost.ledger.migrations.contracting import older_nodes  # noqa: PLC0415

    found = older_nodes(ledger, revision or "0")
    return [f"warning: stop node {each}: it cannot work with these tables any more" for each in found]


def _url_of(dialect: str, ledger: str) -> str:
    if ledger:
        raise ConfigurationError("give either --ledger or --dialect: the URL says what database it is")
    if dialect not in _DIALECTS:
        raise ConfigurationError(f"there is no dialect {dialect!r}; there are {', '.join(_DIALECTS)}")
    return _DIALECTS[dialect]
