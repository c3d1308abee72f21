"""``fencepost permissions``: who may do what on which job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.access_options import JobNames, PrincipalName, RoleName, access, warn_of_unknown
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, Reason
from fencepost.cli.output import answer, at, counted, draw_rows, print_json
from fencepost.errors import ConfigurationError, NotInLedger

if TYPE_CHECKING:
    from fencepost.ledger.accounts import Permission, RoleReasons

app = typer.Typer(
    help="Who may do what: roles on jobs.\n\nExample: fencepost permissions give user:ann operator --job settle",
    epilog="Exit code 1: there is no such account or permission; 2: bad input, or it would leave no admin.",
    no_args_is_help=True,
)


@app.command()
def give(
    principal: PrincipalName,
    role: RoleName,
    *,
    job: JobNames = None,
    by: By = "",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Give a role on all jobs, or on each --job, in place of the one that the principal has there.

    Names of jobs are compared whole: settle says nothing about settle-eu. The parts of a bulk job belong to it.

    Example: fencepost permissions give user:ann operator --job settle --job report
    """
    with access(ledger, by) as change:
        change.give(principal, role, jobs=job or [""], reason=reason or None)
        warn_of_unknown(change, job or [])
    where = ", ".join(job) if job else "all jobs"
    return answer(
        {"principal": principal, "role": role, "jobs": job},
        f"{principal} has the role {role} on {where}",
        as_json=as_json,
    )


@app.command()
def take(
    principal: PrincipalName,
    *,
    job: JobNames = None,
    everything: Annotated[bool, typer.Option("--all", help="Take away all roles, on every job.")] = False,
    by: By = "",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Take away the role on each --job, or with --all every role. Without either, the role that is for all jobs.

    Exit code 1: there is no such account, or it has no such permission; nothing was done.

    Example: fencepost permissions take user:ann --job settle
    """
    if job and everything:
        raise ConfigurationError("give --job or --all, not both")
    with access(ledger, by) as change:
        count = change.take(principal, jobs=None if everything else job or [""], reason=reason or None)
        has = [] if count else change.permissions(principal)
    if not count:
        return _took_nothing(
            principal, "" if everything else f" on {', '.join(job or ['all jobs'])}", has, is_json=as_json
        )
    said = f"took {counted(count, 'permission')} from {principal}"
    return answer({"principal": principal, "taken": count}, said, as_json=as_json)


def _took_nothing(principal: str, where: str, has: list[Permission], *, is_json: bool) -> int:
    """Say that a principal has no such permission, and which it has."""
    if is_json:
        print_json({"principal": principal, "taken": 0})
        return Exit.UNKNOWN
    others = ", ".join(f"{each.role} on {each.job or 'all jobs'}" for each in has)
    raise NotInLedger(
        f"{principal} has no permission{where}, so none was taken away" + (f"; it has: {others}" if others else "")
    )


@app.command("list")
def list_permissions(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="Only of this one.", show_default=False)] = "",
    *,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show who has which role on which job.

    Example: fencepost permissions list user:ann
    """
    with access(ledger) as change:
        found = change.permissions(principal or None)
    if as_json:
        print_json([_document(each) for each in found])
    elif found:
        columns = ("principal", "role", "job", "given", "by")
        draw_rows(columns, map(_cells, found), spare=("by", "given"))
    elif principal:
        print(f"{principal} has no permission; fencepost permissions list shows who has")
    else:
        print("nobody has a permission; fencepost users add NAME --role admin adds the first admin")
    return Exit.OK


@app.command()
def reasons(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="operator or admin.", show_default=False)] = "",
    wanted: Annotated[
        str,
        typer.Argument(metavar="WANTED", help="always: for every act; optional: no longer.", show_default=False),
    ] = "",
    *,
    by: By = "",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Want a reason for every act of those who act in a role; without arguments, show of which roles one is wanted.

    It holds for pages, REST and fencepost --server, at once. Who reaches the database itself is not bounded by it.

    Example: fencepost permissions reasons operator always --reason 'the auditors ask for it'
    """
    if bool(role) != bool(wanted):
        raise ConfigurationError("give a role and always or optional, or neither to see what is wanted")
    with access(ledger, by) as change:
        if not role:
            return _show_reasons(change.role_reasons(), as_json=as_json)
        change.set_role_reasons(role, wanted, reason=reason or None)
    must = (
        "has to give a reason for every act"
        if wanted == "always"
        else "need not give reasons, but where a job asks for one"
    )
    return answer({"role": role, "reasons": wanted}, f"the role {role} {must}", as_json=as_json)


def _show_reasons(found: list[RoleReasons], *, as_json: bool) -> int:
    if as_json:
        print_json([each._asdict() | {"set_at": at(each.set_at)} for each in found])
    else:
        rows = [(each.role, each.reasons, _second(each.set_at), each.set_by or "") for each in found]
        draw_rows(("role", "reasons", "set", "by"), rows)
    return Exit.OK


def _document(permission: Permission) -> dict[str, Any]:
    return {
        "principal": permission.principal,
        "role": permission.role,
        "job": permission.job or None,
        "given_at": at(permission.given_at),
        "given_by": permission.given_by,
    }


def _cells(permission: Permission) -> tuple[str, ...]:
    given = _second(permission.given_at)
    return (permission.principal, permission.role, permission.job or "all jobs", given, permission.given_by)


def _second(us: int | None) -> str:
    return (at(us) or "")[:19].replace("T", " ")
