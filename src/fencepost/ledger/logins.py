"""Logins and API tokens: secrets that identify a person or a program. Only their hashes are stored.

A secret has 256 random bits, so it cannot be found from its SHA-256 by trying. The lookup by hash reveals nothing about
how much of a wrong secret was right. Logins and tokens end when they expire, at a time that is fixed when they are
created, or when they are revoked.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from sqlalchemy import delete, insert, or_, select, update

from fencepost.errors import NoSuchApiToken
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor

_SEEN_PRECISION_US = 60_000_000  # of "last used": a write for every request would cost more than the request itself


class Login(NamedTuple):
    """A login, current or ended."""

    secret_hash: str
    principal: str
    how: str
    address: str | None
    created_at: int
    seen_at: int
    expires_at: int
    revoked_at: int | None


class ApiToken(NamedTuple):
    """An API token. Its secret is shown once, when it is created."""

    id: str
    name: str
    created_at: int
    created_by: str
    expires_at: int
    used_at: int | None
    revoked_at: int | None


def secret_hash(secret: str) -> str:
    """Return the hash under which a secret is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def add_login(
    database: Database, cursor: Cursor, secret: str, principal: str, *, how: str, address: str | None, lasts_s: float
) -> None:
    """Record that `principal` is logged in with `secret`, for `lasts_s` seconds."""
    now = database.dialect.now()
    row = {
        "secret_hash": secret_hash(secret),
        "principal": principal,
        "how": how,
        "address": address,
        "created_at": now,
        "seen_at": now,
        "expires_at": now + round(lasts_s * 1_000_000),
    }
    database.change(cursor, insert(database.tables.operating["login"]).values(row).inline())


def live_login(database: Database, secret: str, *, idle_s: float, is_use: bool = True) -> Login | None:
    """Return the login of a secret; None if it does not exist, has expired, was revoked or was idle for too long.

    Without `is_use`, it does not count as used: an open page asks by itself, also where nobody looks at it.
    """
    table, now = database.tables.operating["login"], database.dialect.now()
    hashed = secret_hash(secret)
    query = select(*(table.c[name] for name in Login._fields)).where(
        table.c.secret_hash == hashed,
        table.c.revoked_at.is_(None),
        table.c.expires_at > now,
        table.c.seen_at > now - round(idle_s * 1_000_000),
    )
    rows = database.read(lambda cursor: database.rows(cursor, query))
    if not rows:
        return None
    seen = update(table).where(table.c.secret_hash == hashed, table.c.seen_at < now - _SEEN_PRECISION_US)
    found = Login(*rows[0])
    if is_use and database.now_us() - found.seen_at > _SEEN_PRECISION_US:
        database.write(lambda cursor: database.change(cursor, seen.values(seen_at=now)))
    return found


def logins(database: Database, *, limit: int = 100) -> list[Login]:
    """Return the logins that are neither revoked nor expired, newest first."""
    c, now = database.tables.operating["login"].c, database.dialect.now()
    query = select(*(c[name] for name in Login._fields)).where(c.revoked_at.is_(None), c.expires_at > now)
    ordered = query.order_by(c.created_at.desc()).limit(limit)
    return database.read(lambda cursor: [Login(*row) for row in database.rows(cursor, ordered)])


def revoke_login(database: Database, cursor: Cursor, hashed: str) -> int:
    """Revoke the login whose secret has this hash; return 1, or 0 if it was already revoked or does not exist."""
    table = database.tables.operating["login"]
    change = update(table).where(table.c.secret_hash == hashed, table.c.revoked_at.is_(None))
    return database.change(cursor, change.values(revoked_at=database.dialect.now()))


def revoke_all(database: Database, cursor: Cursor, *, tokens: bool) -> None:
    """Revoke every login, and with `tokens` every API token: those of a dump may have been revoked since."""
    for name in ("login", "api_token") if tokens else ("login",):
        table = database.tables.operating[name]
        change = update(table).where(table.c.revoked_at.is_(None))
        database.change(cursor, change.values(revoked_at=database.dialect.now()))


def add_api_token(
    database: Database, cursor: Cursor, token_id: str, secret: str, *, name: str, by: str, expires_at: int
) -> None:
    """Record an API token under its id. Its permissions are those of the principal ``token:ID``."""
    row = {
        "id": token_id,
        "secret_hash": secret_hash(secret),
        "name": name,
        "created_at": database.dialect.now(),
        "created_by": by,
        "expires_at": expires_at,
    }
    database.change(cursor, insert(database.tables.operating["api_token"]).values(row).inline())


def live_api_token(database: Database, secret: str) -> ApiToken | None:
    """Return the API token of a secret; None if it does not exist, has expired or was revoked."""
    table, now = database.tables.operating["api_token"], database.dialect.now()
    query = select(*(table.c[name] for name in ApiToken._fields)).where(
        table.c.secret_hash == secret_hash(secret), table.c.revoked_at.is_(None), table.c.expires_at > now
    )
    rows = database.read(lambda cursor: database.rows(cursor, query))
    if not rows:
        return None
    found = ApiToken(*rows[0])
    if found.used_at is None or database.now_us() - found.used_at > _SEEN_PRECISION_US:
        used = update(table).where(table.c.id == found.id).values(used_at=now)
        database.write(lambda cursor: database.change(cursor, used))
    return found


def api_tokens(database: Database, *, ended: bool = False) -> list[ApiToken]:
    """Return the API tokens that are neither revoked nor expired, newest first; with `ended`, all of them."""
    c, now = database.tables.operating["api_token"].c, database.dialect.now()
    query = select(*(c[name] for name in ApiToken._fields)).order_by(c.created_at.desc(), c.id)
    wanted = query if ended else query.where(c.revoked_at.is_(None), c.expires_at > now)
    return database.read(lambda cursor: [ApiToken(*row) for row in database.rows(cursor, wanted)])


def revoke_api_token(database: Database, cursor: Cursor, token_id: str) -> bool:
    """Revoke an API token; return whether it was not revoked yet. Raises `NoSuchApiToken`."""
    table = database.tables.operating["api_token"]
    if not database.rows(cursor, select(table.c.id).where(table.c.id == token_id)):
        raise NoSuchApiToken(f"there is no API token {token_id!r}; fencepost api-tokens list shows those there are")
    change = update(table).where(table.c.id == token_id, table.c.revoked_at.is_(None))
    return bool(database.change(cursor, change.values(revoked_at=database.dialect.now())))


def prune_logins(database: Database, *, ended_for_s: float) -> int:
    """Remove the logins that ended more than `ended_for_s` seconds ago; return how many."""
    table = database.tables.operating["login"]
    before = database.dialect.now() - round(ended_for_s * 1_000_000)
    old = delete(table).where(or_(table.c.revoked_at < before, table.c.expires_at < before))
    return database.write(lambda cursor: database.change(cursor, old))
