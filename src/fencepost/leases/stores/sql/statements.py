# ruff: noqa: S608 - table names are checked identifiers (see options), all values are parameters
"""The SQL of a lease store, with parameters for the few parts that differ between databases.

Instants are whole microseconds. `now` is the clock for expiry, and `wall` the clock for tokens and timestamps; they
differ only on SQLite. The check whether a session is alive has a lenience, in µs: 0, or `ALWAYS` for a holder that
renewed within the ttl by its own clock; for such a holder, the session only has to exist. A lease without a done tick
has `NEVER` as its last one, and an acquisition without a tick uses `ALWAYS`, so that no statement has to handle NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.fencing import AHEAD_US
from fencepost.core.names import NODE_LEASE
from fencepost.leases.stores.sql.options import LeaseTables

NEVER = -(2**62)  # before every instant
ALWAYS = 2**62  # after every instant, and small enough to be subtracted from one
WATCHED = NODE_LEASE
"""A session with a lease whose name has this prefix is ended only by a process that has watched it for a ttl."""
# Renewal compares the sum of the session's tokens, modulo this prime, with the sum over the caller's grants.
TOKEN_SUM_PRIME = 2_147_483_647  # without it, the sum of some 5,000 tokens would not fit into eight bytes


@dataclass(frozen=True, slots=True)
class Words:
    """Where the databases differ."""

    now: str
    wall: str
    greatest: str = "GREATEST"
    big: str = "bigint"
    for_update: str = " FOR UPDATE"
    by_name: str = "l.name"
    # How a statement returns the number it wrote: with RETURNING, or with MySQL's LAST_INSERT_ID.
    returning: str = " RETURNING token"
    noted: Callable[[str], str] = lambda expression: expression
    unless_there: str = " ON CONFLICT (name) DO NOTHING"
    is_waited_for: str = "NULL"  # whether somebody waits for `l`, where waiters mark the row


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of one store, parameters marked by ``%s``."""

    renew: str
    take: str
    insert: str
    end: str
    past: str
    past_of: str
    reset: str
    has_ended: str
    open: str
    close: str
    bury: str
    bury_seen: str
    is_there: str
    watched: str
    unwatched: str
    watch: str
    free: str
    leases_of: str
    grants_of: str
    look_for: str
    look: str
    records: str
    page: str
    page_of_held: str
    current: str
    history: str
    history_of: str
    prune: str
    forget: str
    expired: str


def statements(words: Words, tables: LeaseTables) -> Statements:
    """Build the statements for one database and one set of tables."""
    now, wall, greatest = words.now, words.wall, words.greatest
    session, lease, history = tables.session, tables.lease, tables.history
    token = words.noted(f"{greatest}(token + 1, %s, {wall})")
    first_token = words.noted(f"{greatest}(%s, {wall})")
    seen = (
        "l.name, l.token, l.holder, l.grant_id, l.session_id, l.acquired_at, l.kept_until, l.last_tick, "
        f"s.expires_at, {now}, s.ttl_us, {words.is_waited_for}"
    )
    # The sessions of nodes are left out: there may be many of the past, and operators look at the nodes instead.
    after = f"l.name > %s AND substr(l.name, 1, {len(WATCHED)}) <> '{WATCHED}' ORDER BY l.name LIMIT %s"
    whole = f"{lease} l LEFT JOIN {session} s ON s.id = l.session_id"
    is_alive = f"(SELECT s.expires_at FROM {session} s WHERE s.id = %s) > {now} - %s"  # quicker than EXISTS on MariaDB
    past_columns = "name, holder, token, acquired_at, ended_at, why"
    ended = (
        f"UPDATE {lease} SET session_id = NULL, grant_id = NULL, kept_until = %s * ({now} + %s), "
        f"last_tick = {greatest}(last_tick, %s) WHERE name = %s AND grant_id = %s"
    )
    of_the_past = f"name LIKE %s AND session_id IS NULL AND acquired_at < {wall} - %s AND kept_until <= {now}"
    oldest = f"SELECT id FROM {history} ORDER BY id LIMIT 500"
    return Statements(
        renew=_renewal(words, tables),
        take=f"UPDATE {lease} SET token = {token}, session_id = %s, grant_id = %s, holder = %s, "
        f"acquired_at = {wall}, last_tick = {greatest}(last_tick, %s) WHERE name = %s AND session_id IS NULL "
        f"AND kept_until <= {now} AND last_tick < %s AND {is_alive}{words.returning}",
        insert=f"INSERT INTO {lease} (token, session_id, grant_id, holder, acquired_at, last_tick, name, kept_until) "
        f"SELECT {first_token}, %s, %s, %s, {wall}, %s, %s, 0 FROM {session} s "
        f"WHERE s.id = %s AND s.expires_at > {now} - %s{words.unless_there}{words.returning}",
        end=ended,
        past=f"INSERT INTO {history} ({past_columns}) SELECT name, holder, token, acquired_at, {wall}, %s FROM {lease}",
        past_of=f"INSERT INTO {history} ({past_columns}) SELECT name, holder, token, acquired_at, {wall}, %s "
        f"FROM {lease} WHERE name = %s",
        reset=f"UPDATE {lease} SET token = {words.noted(wall)} WHERE name = %s AND token = %s AND session_id IS NULL "
        f"AND token > {wall} + {AHEAD_US}{words.returning}",
        has_ended=f"SELECT 1 FROM {history} WHERE name = %s AND token = %s AND why = %s",
        open=f"INSERT INTO {session} (id, holder, ttl_us, opened_at, expires_at) "
        f"VALUES (%s, %s, %s, {wall}, {now} + %s)",
        close=f"DELETE FROM {session} WHERE id = %s",
        bury=f"DELETE FROM {session} WHERE id = %s AND expires_at <= {now}",
        # If the clock went back since the last renewal, the session expires later than a renewal now could make it.
        bury_seen=f"DELETE FROM {session} WHERE id = %s AND expires_at = %s "
        f"AND (expires_at <= {now} OR expires_at > {now} + ttl_us)",
        is_there=f"SELECT 1 FROM {session} WHERE id = %s",
        watched=f"SELECT s.expires_at, s.ttl_us FROM {session} s WHERE s.id = %s AND EXISTS "
        f"(SELECT 1 FROM {lease} l WHERE l.session_id = s.id AND l.name >= %s AND l.name < %s)",
        unwatched=f"SELECT s.expires_at, s.ttl_us FROM {session} s WHERE s.id = %s",
        watch=f"SELECT l.grant_id, s.id, s.expires_at, s.ttl_us, {now} FROM {lease} l JOIN {session} s "
        "ON s.id = l.session_id WHERE l.name IN ",
        free=f"UPDATE {lease} SET session_id = NULL, grant_id = NULL",
        leases_of=f"SELECT name FROM {lease} WHERE session_id = %s ORDER BY name{words.for_update}",
        grants_of=f"SELECT grant_id FROM {lease} WHERE session_id = %s",
        # Always one row: whether the asking session is alive, and the lease, or NULLs if there is none.
        look_for=f"SELECT (SELECT 1 FROM {session} me WHERE me.id = %s AND me.expires_at > {now} - %s), {seen} "
        f"FROM (SELECT 1 AS one) one LEFT JOIN {lease} l ON l.name = %s LEFT JOIN {session} s ON s.id = l.session_id",
        look=f"SELECT {seen} FROM {whole} WHERE l.name = %s",
        records=f"SELECT {seen} FROM {whole} ORDER BY {words.by_name}",
        page=f"SELECT {seen} FROM {whole} WHERE {after}",
        page_of_held=f"SELECT {seen} FROM {whole} WHERE l.session_id IS NOT NULL AND {after}",
        current=f"SELECT l.grant_id, s.id, s.expires_at > {now} FROM {lease} l JOIN {session} s "
        "ON s.id = l.session_id WHERE l.name IN ",
        history=f"SELECT {past_columns} FROM {history} ORDER BY id DESC LIMIT %s",
        history_of=f"SELECT {past_columns} FROM {history} WHERE name = %s ORDER BY id DESC LIMIT %s",
        forget=f"DELETE FROM {lease} WHERE {of_the_past} AND name IN (SELECT name FROM (SELECT name FROM {lease} "
        f"WHERE {of_the_past} LIMIT 500) past)",
        prune=f"DELETE FROM {history} WHERE ended_at < {wall} - %s AND id <= (SELECT max(id) FROM ({oldest}) oldest)",
        expired=f"SELECT id FROM {session} WHERE expires_at <= {now} - %s LIMIT 100",
    )


def _renewal(words: Words, tables: LeaseTables) -> str:
    """Return the statement that extends a session and returns the sum of its tokens.

    Parameters: the ttl, the session's id, and how long it may have been expired by the database's clock.
    """
    session = tables.session
    total = (
        f"(SELECT CAST(COALESCE(SUM(l.token %% {TOKEN_SUM_PRIME}), 0) AS {words.big}) "
        f"FROM {tables.lease} l WHERE l.session_id = {session}.id)"
    )
    alive = f"WHERE id = %s AND expires_at > {words.now} - %s"
    if words.returning:
        return f"UPDATE {session} SET expires_at = {words.now} + %s {alive} RETURNING {total}"
    return f"UPDATE {session} SET expires_at = {words.now} + %s + 0 * {words.noted(total)} {alive}"


def marks(count: int) -> str:
    """Return ``(%s, %s, …)``."""
    return "(" + ", ".join(["%s"] * count) + ")"
