"""``fencepost locks``: show locks, and release one by force. Showing locks neither takes nor creates one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli import tables
from fencepost.cli.documents import document
from fencepost.cli.exec_options import STORE_VARIABLE
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import By, LedgerUrlOption, Reason, front
from fencepost.cli.lock_places import LockPlace, needs_terminal, reached
from fencepost.cli.output import answer, draw_rows, print_json, say, to_the_second
from fencepost.core.names import lock_name
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app.records import LockRecord
    from fencepost.app.records.locks import KeyRecord

app = typer.Typer(
    help="Show locks, and release one by force.",
    epilog=f"The store is --store URL or ${STORE_VARIABLE}. With --ledger URL, or with a server, it is the one of the "
    "ledger's nodes, and what is done is in the audit. Exit code 1: there is no such lock; 2: bad input, or the "
    "store cannot be reached. fencepost locks list --help and the like have examples.",
    no_args_is_help=True,
)

_Store = Annotated[
    str,
    typer.Option(
        "--store", metavar="URL", help=f"Where the locks are kept. Default: ${STORE_VARIABLE}.", show_default=False
    ),
]
_Ledger = Annotated[
    str,
    typer.Option(
        "--ledger", metavar="URL", help="A ledger, whose own leases are meant. Acts are audited.", show_default=False
    ),
]
_Other = Annotated[
    bool, typer.Option("--leases", help="With a server: the other store that the application names (leases=…).")
]
_Json = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the lock.")]


@app.command("list")
def list_(
    *,
    store: _Store = "",
    ledger: _Ledger = "",
    other: _Other = False,
    every: Annotated[
        bool, typer.Option("--all", help="With --store: also the sessions of nodes that are gone.")
    ] = False,
    as_json: _Json = False,
) -> int:
    """Show every lock: who holds it, with which token, since when.

    With --store, in a ledger's database, each living node also has one: its session.

    Example: fencepost locks list --store postgresql://db/app

    Example: fencepost --server https://jobs.example.org locks list
    """
    with reached(LockPlace(store, ledger, other)) as place:
        records = place.records(every=every)
    if as_json:
        print_json([document(record) for record in records])
    elif records:
        tables.print_records(records)
    else:
        print("no lock has been taken here yet")
    return Exit.OK


@app.command()
def show(
    name: _Name, *, store: _Store = "", ledger: _Ledger = "", other: _Other = False, as_json: _Json = False
) -> int:
    """Show one lock.

    Example: fencepost locks show nightly --store postgresql://db/app --json
    """
    lock_name(name)
    with reached(LockPlace(store, ledger, other)) as place:
        record = place.show(name)
    if as_json:
        print_json(document(record))
    else:
        tables.print_record(record)
    return Exit.OK


@app.command()
def history(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One lock only.", show_default=False)] = None,
    *,
    store: _Store = "",
    ledger: _Ledger = "",
    other: _Other = False,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest to show.")] = 100,
    as_json: _Json = False,
) -> int:
    """Show who held which lock, with which token, from when until when, and why it ended; newest first.

    Example: fencepost locks history nightly --store sqlite:///locks.db
    """
    if name is not None:
        lock_name(name)
    with reached(LockPlace(store, ledger, other)) as place:
        past = place.history(name, limit=limit)
    if past is None:
        print("fencepost: this store keeps no history", file=sys.stderr)
    if as_json:
        print_json([document(grant) for grant in past or ()])
    elif past:
        tables.print_history(past)
    elif past is not None:
        print("no grant has ended here yet")
    return Exit.OK


@app.command()
def release(
    name: _Name,
    *,
    store: _Store = "",
    ledger: _Ledger = "",
    other: _Other = False,
    reason: Reason = "",
    by: By = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: _Json = False,
) -> int:
    """Take a lock away from its holder, by force.

    The holder notices at a renewal, within a third of its ttl;
    on etcd, ZooKeeper and Kubernetes within about a ttl.
    Until then only a fence stops its writes.
    Better, if you can: end the holder, and its lock goes with it.

    With --ledger and with a server, --reason is required, and the act is in the audit.

    Example: fencepost locks release nightly --store postgresql://db/app --yes

    Example: fencepost locks release nightly --ledger postgresql://db/jobs --reason 'its host is gone'
    """
    lock_name(name)
    with reached(LockPlace(store, ledger, other)) as place:
        person, why = place.on_record(by, reason)
        record = place.show(name)
        if record.held and not yes:
            _confirm(record)
        is_done = record.held and place.release(record, by=person, reason=why)
    return answer({"released": is_done, **document(record)}, _what_was_done(record, is_done=is_done), as_json=as_json)


@app.command()
def reset(
    name: _Name,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is logged and kept in the history.")],
    store: _Store = "",
    ledger: _Ledger = "",
    other: _Other = False,
    by: By = "",
    as_json: _Json = False,
) -> int:
    """Bring back the token of a lock that a wrong clock has put more than a day ahead.

    Fences refuse such a token, so the holder of the lock
    cannot write until real time catches up. The lock must be free.

    Example: fencepost locks reset nightly --reason 'the clock was wrong' --store postgresql://db/app
    """
    lock_name(name)
    with reached(LockPlace(store, ledger, other)) as place:
        record = place.show(name)
        token = place.reset(name, by=by, reason=reason)
    sentence = f"the token of {name!r} was {record.token} and is {token} now; later holders can write again"
    return answer({"name": name, "was": record.token, "token": token}, sentence, as_json=as_json)


@app.command()
def keys(
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many keys to show.")] = 100,
    ledger: LedgerUrlOption = "",
    as_json: _Json = False,
) -> int:
    """Show the exclusive keys of runs: which run has each, and which runs wait for it.

    A key is not released by itself: cancel the run that has it (fencepost cancel RUN).

    Example: fencepost locks keys
    """
    with front(ledger) as ops:
        found = ops.locks.keys(limit=limit)
    if as_json:
        print_json([document(each) for each in found])
    elif found:
        draw_rows(
            ("key", "held by", "node", "since", "token", "waiting"), map(_key_cells, found), spare=("token", "node")
        )
    else:
        say("no run has an exclusive key, and none waits for one")
    return Exit.OK


def _key_cells(key: KeyRecord) -> tuple[str, ...]:
    held_by = f"run {key.run_id} of {key.job}" if key.run_id else f"a run of {key.job}" if key.held else "nobody"
    count = f"{len(key.waiting)}{'+' if key.more_waiting else ''}" if key.waiting else ""
    token = "" if key.token is None else str(key.token)
    return (key.key, held_by, key.node_name or key.node or "", to_the_second(key.since_at), token, count)


def _confirm(record: LockRecord) -> None:
    if needs_terminal():
        raise ConfigurationError(
            "release asks before it takes a lock away, and there is no terminal to ask on; add --yes"
        )
    from fencepost.app.records.locks import release_consequence  # noqa: PLC0415 - it loads the engine

    say(release_consequence(record))
    typer.confirm(f"Take {record.name!r} away from {tables.holder_of(record)} (token {record.token})?", abort=True)


def _what_was_done(record: LockRecord, *, is_done: bool) -> str:
    if not is_done:
        since = " any more by the holder that was shown" if record.held else ""
        return f"{record.name!r} is not held{since}; nothing was done"
    return (
        f"took {record.name!r} away from {tables.holder_of(record)} (token {record.token}); "
        "until its next renewal only a fence stops its writes"
    )
