"""Logins and API tokens: secrets by which a person or a program is known, each stored as a hash.

A secret has 256 random bits, so its SHA-256 cannot be searched through, and looking it up by the hash tells nothing
about how much of a wrong one was right. Both end at a time that is fixed when they are made, or when they are revoked.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from sqlalchemy import delete, insert, or_, select, update

from fencepost.errors import NoSuchApiToken
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor

_USED_AGAIN_US = 60_000_000  # how exact "last used" is: a write for every request would cost more than the request


class Login(NamedTuple):
    """Somebody who is logged in, or was."""

    secret_hash: str
    principal: str
    how: str
    address: str | None
    created_at: int
    seen_at: int
    expires_at: int
    revoked_at: int | None


class ApiToken(NamedTuple):
    """An API token. Its secret is shown once, when it is made."""

    id: str
    name: str
    created_at: int
    created_by: str
    expires_at: int
    used_at: int | None
    revoked_at: int | None


def secret_hash(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def add_login(
    database: Database, cursor: Cursor, secret: str, principal: str, *, how: str, address: str | None, lasts_s: float
) -> None:
    """Record that `principal` is logged in by `secret`, for `lasts_s`."""
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


def live_login(database: Database, secret: str, *, idle_s: float) -> Login | None:
    """Return the login of a secret; None if there is none, or it has expired, was revoked or was idle for too long."""
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
    seen = update(table).where(table.c.secret_hash == hashed, table.c.seen_at < now - _USED_AGAIN_US)
    found = Login(*rows[0])
    if database.now_us() - found.seen_at > _USED_AGAIN_US:
        database.write(lambda cursor: database.change(cursor, seen.values(seen_at=now)))
    return found


def logins(database: Database, *, limit: int = 100) -> list[Login]:
    """Return the logins that are alive, the newest first."""
    c, now = database.tables.operating["login"].c, database.dialect.now()
    query = select(*(c[name] for name in Login._fields)).where(c.revoked_at.is_(None), c.expires_at > now)
    ordered = query.order_by(c.created_at.desc()).limit(limit)
    return database.read(lambda cursor: [Login(*row) for row in database.rows(cursor, ordered)])


def revoke_login(database: Database, cursor: Cursor, hashed: str) -> int:
    """End the login whose secret has this hash; return whether it was alive, as a count."""
    table = database.tables.operating["login"]
    change = update(table).where(table.c.secret_hash == hashed, table.c.revoked_at.is_(None))
    return database.change(cursor, change.values(revoked_at=database.dialect.now()))


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
    """Return the API token of a secret; None if there is none, or it has expired or was revoked."""
    table, now = database.tables.operating["api_token"], database.dialect.now()
    query = select(*(table.c[name] for name in ApiToken._fields)).where(
        table.c.secret_hash == secret_hash(secret), table.c.revoked_at.is_(None), table.c.expires_at > now
    )
    rows = database.read(lambda cursor: database.rows(cursor, query))
    if not rows:
        return None
    found = ApiToken(*rows[0])
    if found.used_at is None or database.now_us() - found.used_at > _USED_AGAIN_US:
        used = update(table).where(table.c.id == found.id).values(used_at=now)
        database.write(lambda cursor: database.change(cursor, used))
    return found


def api_tokens(database: Database, *, ended: bool = False) -> list[ApiToken]:
    """Return API tokens that are alive, the newest first; with `ended` also those that are not."""
    c, now = database.tables.operating["api_token"].c, database.dialect.now()
    query = select(*(c[name] for name in ApiToken._fields)).order_by(c.created_at.desc(), c.id)
    wanted = query if ended else query.where(c.revoked_at.is_(None), c.expires_at > now)
    return database.read(lambda cursor: [ApiToken(*row) for row in database.rows(cursor, wanted)])


def revoke_api_token(database: Database, cursor: Cursor, token_id: str) -> bool:
    """End an API token; return whether it was alive."""
    table = database.tables.operating["api_token"]
    if not database.rows(cursor, select(table.c.id).where(table.c.id == token_id)):
        raise NoSuchApiToken(token_id)
    change = update(table).where(table.c.id == token_id, table.c.revoked_at.is_(None))
    return bool(database.change(cursor, change.values(revoked_at=database.dialect.now())))


def prune_logins(database: Database, *, ended_for_s: float) -> int:
    """Remove logins that ended so long ago."""
    table = database.tables.operating["login"]
    before = database.dialect.now() - round(ended_for_s * 1_000_000)
    old = delete(table).where(or_(table.c.revoked_at < before, table.c.expires_at < before))
    return database.write(lambda cursor: database.change(cursor, old))
