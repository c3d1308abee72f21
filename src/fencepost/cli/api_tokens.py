"""``fencepost api-tokens``: secrets by which programs use the REST interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.access_options import JobNames, RoleName, access, warn_of_unknown
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, Json, LedgerUrlOption, Reason
from fencepost.cli.output import answer, at, counted, draw_rows, exactly, print_json, say
from fencepost.core.duration import typed_seconds

if TYPE_CHECKING:
    from fencepost.ledger.logins import ApiToken

app = typer.Typer(
    help="API tokens: how programs use the REST interface.\n\n"
    "Example: fencepost api-tokens add ci viewer --job settle --expires-in 30d",
    epilog="Exit code 1: there is no such API token; 2: bad input.",
    no_args_is_help=True,
)
TokenId = Annotated[str, typer.Argument(metavar="ID", help="As api-tokens list shows it.")]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    role: RoleName,
    *,
    by: By = "",
    job: JobNames = None,
    expires_in: Annotated[str, typer.Option(metavar="DURATION", help="When it ends; at most 366d.")] = "90d",
    reason: Reason = "",
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Make an API token with a role on all jobs, or on each --job. It is shown now, and never again.

    Example: fencepost api-tokens add ci viewer --job settle --expires-in 30d
    """
    typed_seconds(expires_in, what="--expires-in")
    with access(ledger, by) as change:
        made = change.add_api_token(name, role, expires_in=expires_in, jobs=job or [""], reason=reason or None)
        warn_of_unknown(change, job or [])
    if as_json:
        print_json({"id": made.id, "name": name, "expires_at": exactly(made.expires_at), "secret": made.secret})
    else:
        print(f"API token {made.id} ({name}) ends at {exactly(made.expires_at)}. It is not shown again:")
        print(made.secret)
    return Exit.OK


@app.command("list")
def list_tokens(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    ledger: LedgerUrlOption = "",
    as_json: Json = False,
) -> int:
    """Show API tokens, the newest first.

    Example: fencepost api-tokens list --all
    """
    with access(ledger) as change:
        found = change.api_tokens(ended=everything)
        hidden = 0 if everything or as_json else len(change.api_tokens(ended=True)) - len(found)
    if as_json:
        print_json([_document(each) for each in found])
    elif found:
        columns = ("id", "name", "created", "by", "expires", "used", "revoked")
        draw_rows(columns, map(_cells, found), spare=("by", "created"))
    else:
        print("there are no API tokens; fencepost api-tokens add NAME ROLE adds one")
    if hidden:
        say(f"(not shown: {counted(hidden, 'API token')} that expired or was revoked; fencepost api-tokens list --all)")
    return Exit.OK


@app.command()
def revoke(
    token_id: TokenId, *, by: By = "", reason: Reason = "", ledger: LedgerUrlOption = "", as_json: Json = False
) -> int:
    """End an API token, and remove its permissions.

    Example: fencepost api-tokens revoke 5e0c41d2a7b93f60 --reason 'it was committed'
    """
    with access(ledger, by) as change:
        was_alive = change.revoke_api_token(token_id, reason=reason or None)
    said = f"API token {token_id} {'has ended' if was_alive else 'had ended before'}"
    return answer({"id": token_id, "was_alive": was_alive}, said, as_json=as_json)


def _document(token: ApiToken) -> dict[str, Any]:
    times = ("created_at", "expires_at", "used_at", "revoked_at")
    return {"id": token.id, "name": token.name, "created_by": token.created_by} | {
        each: at(getattr(token, each)) for each in times
    }


def _cells(token: ApiToken) -> tuple[str, ...]:
    times = (token.created_at, token.expires_at, token.used_at, token.revoked_at)
    created, expires, used, revoked = ((at(each) or "")[:19].replace("T", " ") for each in times)
    return (token.id, token.name, created, token.created_by, expires, used, revoked)
