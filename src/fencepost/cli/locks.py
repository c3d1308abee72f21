"""``fencepost locks``: show locks, and release one by force. Showing locks neither takes nor creates one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli import tables
from fencepost.cli.documents import document
from fencepost.cli.exec_options import STORE_VARIABLE
from fencepost.cli.exits import Exit
from fencepost.cli.output import answer, print_json
from fencepost.core.names import NODE_LEASE, lock_name
from fencepost.errors import ConfigurationError, FencepostError, LockHeld
from fencepost.leases.locks import Locks
from fencepost.locks import connect

if TYPE_CHECKING:
    from fencepost.app.records import LockRecord
    from fencepost.core.grants import LeaseRecord

app = typer.Typer(
    help="Show locks, and release one by force.",
    epilog=f"The store is --store URL or ${STORE_VARIABLE}. Exit code 1: there is no such lock; 2: bad input, or the "
    "store cannot be reached. fencepost locks list --help and the like have examples.",
    no_args_is_help=True,
)

_Store = Annotated[str, typer.Option("--store", metavar="URL", envvar=STORE_VARIABLE, help="Where the locks are kept.")]
_Json = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the lock.")]


@app.command("list")
def list_(
    store: _Store = "",
    every: Annotated[bool, typer.Option("--all", help="Also the sessions of nodes that are gone.")] = False,
    as_json: _Json = False,
) -> int:
    """Show every lock: who holds it, with which token, since when.

    In a ledger, each living node also has one: its session.

    Example: fencepost locks list --store postgresql://db/app
    """
    from fencepost.app.records import LockRecord  # noqa: PLC0415 - it loads the engine

    with _connected(store) as locks:
        found = [LockRecord.of(each) for each in locks.records()]
    records = [record for record in found if every or not _is_of_the_past(record)]
    if as_json:
        print_json([document(record) for record in records])
    elif records:
        tables.print_records(records)
    else:
        print("no lock has been taken here yet")
    return Exit.OK


@app.command()
def show(name: _Name, store: _Store = "", as_json: _Json = False) -> int:
    """Show one lock.

    Example: fencepost locks show nightly --store postgresql://db/app --json
    """
    with _known(name, store) as (_, record):
        if as_json:
            print_json(document(record))
        else:
            tables.print_record(record)
    return Exit.OK


@app.command()
def history(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One lock only.", show_default=False)] = None,
    store: _Store = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest to show.")] = 100,
    as_json: _Json = False,
) -> int:
    """Show who held which lock, with which token, from when until when, and why it ended; newest first.

    Example: fencepost locks history nightly --store sqlite:///locks.db
    """
    from fencepost.app.records import PastLockRecord  # noqa: PLC0415 - it loads the engine

    if name is not None:
        lock_name(name)
    with _connected(store) as locks:
        grants = locks.history(name, limit=limit)
    past = None if grants is None else [PastLockRecord.of(each) for each in grants]
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
    store: _Store = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: _Json = False,
) -> int:
    """Take a lock away from its holder, by force.

    The holder notices at a renewal, within a third of its ttl;
    on etcd, ZooKeeper and Kubernetes within about a ttl.
    Until then only a fence stops its writes.
    Better, if you can: end the holder, and its lock goes with it.

    Example: fencepost locks release nightly --store postgresql://db/app --yes
    """
    with _known(name, store) as (locks, record):
        if record.held and not yes:
            _confirm(record)
        taken = _shown(locks.revoke(name)) if record.held else None
    released = {"released": taken is not None, **document(taken or record)}
    return answer(released, _what_was_done(name, taken), as_json=as_json)


@app.command()
def reset(
    name: _Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is logged and kept in the history.")],
    store: _Store = "",
    as_json: _Json = False,
) -> int:
    """Bring back the token of a lock that a wrong clock has put more than a day ahead.

    Fences refuse such a token, so the holder of the lock
    cannot write until real time catches up. The lock must be free.

    Example: fencepost locks reset nightly --reason 'the clock was wrong' --store postgresql://db/app
    """
    with _known(name, store) as (locks, record):
        try:
            now = locks.reset(name, reason=reason)
        except LockHeld as held:
            raise ConfigurationError(f"{held}; end its holder, or run: fencepost locks release {name}") from None
    sentence = f"the token of {name!r} was {record.token} and is {now.token} now; later holders can write again"
    return answer({"name": name, "was": record.token, "token": now.token}, sentence, as_json=as_json)


@contextmanager
def _known(name: str, store: str) -> Iterator[tuple[Locks, LockRecord]]:
    """Connect, and read a lock that must exist."""
    lock_name(name)
    with _connected(store) as locks:
        record = _shown(locks.read(name))
        if record is None:
            raise _NoSuchLock(f"there is no lock {name!r} here")
        yield locks, record


class _NoSuchLock(FencepostError, LookupError):
    """The store has no lock of this name."""


def _shown(record: LeaseRecord | None) -> LockRecord | None:
    from fencepost.app.records import LockRecord  # noqa: PLC0415 - it loads the engine

    return None if record is None else LockRecord.of(record)


def _is_of_the_past(record: LockRecord) -> bool:
    """Whether it was the session of a node that has left or died. No node will hold it again."""
    return record.name.startswith(NODE_LEASE) and not record.held


def _connected(store: str) -> Locks:
    if not store:
        raise ConfigurationError(f"which store? Give --store URL or set {STORE_VARIABLE}")
    return connect(store)


def _confirm(record: LockRecord) -> None:
    if not sys.stdin or not sys.stdin.isatty():
        raise ConfigurationError(
            "release asks before it takes a lock away, and there is no terminal to ask on; add --yes"
        )
    typer.confirm(f"Take {record.name!r} away from {tables.holder_of(record)} (token {record.token})?", abort=True)


def _what_was_done(name: str, taken: LockRecord | None) -> str:
    if taken is None:
        return f"{name!r} is not held; nothing was done"
    return (
        f"took {name!r} away from {tables.holder_of(taken)} (token {taken.token}); "
        "until its next renewal only a fence stops its writes"
    )
