"""``fencepost users``: local accounts. The first admin and a lost password are matters of these commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.access_options import JobNames, PasswordFile, access, read_password, warn_of_unknown
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, Reason
from fencepost.cli.output import answer, at, draw_rows, print_json

if TYPE_CHECKING:
    from fencepost.access import Access
    from fencepost.ledger.accounts import Account

app = typer.Typer(
    help="Local accounts of the pages and the REST interface.\n\nExample: fencepost users add ann --role admin",
    epilog="Exit code 1: there is no such account; 2: bad input, or it would leave no admin.",
    no_args_is_help=True,
)
UserName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the account.")]


@app.command()
def add(
    name: UserName,
    *,
    by: By = "",
    role: Annotated[str, typer.Option(metavar="ROLE", help="Also give a role.", show_default=False)] = "",
    job: JobNames = None,
    password_file: PasswordFile = "",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Add an account. With --role, it gets that role on all jobs, or on each --job.

    Example: fencepost users add ann --role operator --job settle
    """
    with access(ledger, by) as change:
        _refuse_early(change, name, role)
        password, jobs = read_password(password_file, name=name), job or [""]
        change.add_account(name, password, role=role or None, jobs=jobs, reason=reason or None)
        warn_of_unknown(change, jobs if role else [])
    what = f" with the role {role} on {', '.join(job) if job else 'all jobs'}" if role else "; it has no role yet"
    return answer({"name": name, "role": role or None, "jobs": job}, f"added account {name}{what}", as_json=as_json)


@app.command("list")
def list_accounts(*, ledger: LedgerUrlOption = "", as_json: Json = False) -> int:
    """Show the accounts.

    Example: fencepost users list
    """
    with access(ledger) as change:
        found = change.accounts()
    if as_json:
        print_json([_document(each) for each in found])
    elif found:
        draw_rows(("name", "created", "by", "password set", "disabled"), map(_cells, found), spare=("by",))
    else:
        print("there are no accounts; fencepost users add NAME --role admin adds the first one")
    return Exit.OK


@app.command()
def password(
    name: UserName,
    *,
    reason: Reason = "",
    password_file: PasswordFile = "",
    by: By = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Give an account another password. Its logins end.

    Example: fencepost users password ann
    """
    with access(ledger, by) as change:
        change.set_password(name, read_password(password_file, name=name), reason=reason or None)
    return answer({"name": name}, f"account {name} has a new password; its logins have ended", as_json=as_json)


@app.command()
def disable(
    name: UserName, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Let nobody log in to an account any more, and end its logins. Its permissions stay.

    Example: fencepost users disable ann --reason 'left the team'
    """
    with access(ledger, by) as change:
        change.disable_account(name, reason=reason or None)
    return answer({"name": name}, f"account {name} is disabled; its logins have ended", as_json=as_json)


@app.command()
def enable(
    name: UserName, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Let an account that was disabled log in again.

    Example: fencepost users enable ann
    """
    with access(ledger, by) as change:
        change.enable_account(name, reason=reason or None)
    return answer({"name": name}, f"account {name} can log in again", as_json=as_json)


@app.command()
def remove(
    name: UserName, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """Remove an account with its permissions and logins. The audit keeps the name.

    Example: fencepost users remove ann --reason 'left the team'
    """
    with access(ledger, by) as change:
        change.remove_account(name, reason=reason or None)
    return answer({"name": name}, f"account {name} is removed, with its permissions", as_json=as_json)


def _refuse_early(change: Access, name: str, role: str) -> None:
    """Refuse what would be refused anyway before anybody types a password twice. The act itself compares as well."""
    from fencepost.access.access import account_name, name_taken, role_named  # noqa: PLC0415 - it loads the engine

    if role:
        role_named(role)
    if account_name(name) in {each.name for each in change.accounts()}:
        raise name_taken(name)


def _document(account: Account) -> dict[str, Any]:
    return {
        "name": account.name,
        "has_password": account.password is not None,
        "created_at": at(account.created_at),
        "created_by": account.created_by,
        "changed_at": at(account.changed_at),
        "disabled_at": at(account.disabled_at),
    }


def _cells(account: Account) -> tuple[str, ...]:
    times = (account.created_at, account.changed_at, account.disabled_at)
    created, changed, disabled = ((at(each) or "")[:19].replace("T", " ") for each in times)
    return (account.name, created, account.created_by, changed, disabled)
