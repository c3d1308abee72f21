"""Accounts and permissions: which accounts exist, and who may do what on which job.

A permission is given to a principal: ``user:ann`` (an account in this ledger), ``token:5e0c…`` (an API token),
``proxy:ann`` and ``host:ann`` (identified by a proxy, or by the application that mounts the pages).

**Promises.** The last principal with the role admin for all jobs cannot lose that role, be disabled or be removed, or
lose the password, even if two people try it concurrently. API tokens do not count as admins here, because they expire,
and neither do accounts without a password, because nobody can log in with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, select, update

from fencepost.core.policy import Reason
from fencepost.core.rights import ALL_JOBS, Role
from fencepost.errors import LastAdmin, NoSuchAccount
from fencepost.ledger.database import Database
from fencepost.ledger.dialects import Cursor

USER, TOKEN = "user:", "token:"
_OPTIONAL = Reason.OPTIONAL.value  # any other word, of a newer version, wants a reason


class Account(NamedTuple):
    """A local account. `password` is a hash, or None if the account cannot log in with a password."""

    name: str
    password: str | None
    created_at: int
    created_by: str
    changed_at: int
    disabled_at: int | None


class Permission(NamedTuple):
    """A role that a principal has on a job, or on all jobs (`ALL_JOBS`)."""

    principal: str
    job: str
    role: str
    given_at: int
    given_by: str


class RoleReasons(NamedTuple):
    """Whether those who act in a role have to say why: ``always``, or ``optional``. `set_at` is None if never set."""

    role: str
    reasons: str
    set_at: int | None = None
    set_by: str | None = None


def accounts(database: Database) -> list[Account]:
    """Return all accounts, by name."""
    c = database.tables.operating["account"].c
    query = select(*(c[name] for name in Account._fields)).order_by(c.name)
    return database.read(lambda cursor: [Account(*row) for row in database.rows(cursor, query)])


def account(database: Database, name: str) -> Account | None:
    """Return one account, or None if there is none with this name."""
    return database.read(lambda cursor: _account(database, cursor, name))


def locked_account(database: Database, cursor: Cursor, name: str) -> Account | None:
    """Return one account, which nobody else can change until the transaction of `cursor` ends."""
    return _account(database, cursor, name, is_locked=True)


def put_account(database: Database, cursor: Cursor, name: str, password: str | None, *, by: str) -> bool:
    """Create an account, or change the password of an existing one; return whether it is new. Ends all its logins."""
    table, now = database.tables.operating["account"], database.dialect.now()
    end_logins(database, cursor, f"{USER}{name}")
    if _account(database, cursor, name, is_locked=True) is not None:
        change = update(table).where(table.c.name == name).values(password=password, changed_at=now)
        _keep_an_admin(database, cursor, lambda: database.change(cursor, change))
        return False
    row = {"name": name, "password": password, "created_at": now, "created_by": by, "changed_at": now}
    database.change(cursor, insert(table).values(row).inline())
    return True


def rehash(database: Database, name: str, *, old: str, new: str) -> None:
    """Store another hash of the same password, unless the password was changed in the meantime."""
    table = database.tables.operating["account"]
    change = update(table).where(table.c.name == name, table.c.password == old).values(password=new)
    database.write(lambda cursor: database.change(cursor, change))


def disable_account(database: Database, cursor: Cursor, name: str) -> None:
    """Refuse further logins as `name`, and end its current ones. Its permissions are kept."""
    _keep_an_admin(database, cursor, lambda: _disable(database, cursor, name))
    end_logins(database, cursor, f"{USER}{name}")


def enable_account(database: Database, cursor: Cursor, name: str) -> None:
    """Allow `name` to log in again."""
    table = database.tables.operating["account"]
    change = update(table).where(table.c.name == name).values(disabled_at=None, changed_at=database.dialect.now())
    _require_found(database.change(cursor, change), name)


def remove_account(database: Database, cursor: Cursor, name: str) -> None:
    """Remove an account with its permissions, and end its logins. The audit keeps the name."""
    account, permission = database.tables.operating["account"], database.tables.operating["permission"]

    def remove() -> None:
        _require_found(database.change(cursor, delete(account).where(account.c.name == name)), name)
        database.change(cursor, delete(permission).where(permission.c.principal == f"{USER}{name}"))

    _keep_an_admin(database, cursor, remove)
    end_logins(database, cursor, f"{USER}{name}")


def give(database: Database, cursor: Cursor, principal: str, job: str, role: Role, *, by: str) -> None:
    """Give a principal a role on a job; it replaces the role that the principal had there."""
    table = database.tables.operating["permission"]

    def put() -> None:
        here = (table.c.principal == principal, table.c.job == job)
        database.change(cursor, delete(table).where(*here))
        row = {"principal": principal, "job": job, "role": role.value, "given_at": database.dialect.now()}
        database.change(cursor, insert(table).values({**row, "given_by": by}).inline())

    if job == ALL_JOBS and role is not Role.ADMIN:
        _keep_an_admin(database, cursor, put)
    else:
        put()


def take(database: Database, cursor: Cursor, principal: str, job: str | None = None) -> int:
    """Remove the role on a job, or with None all roles of a principal; return how many were removed."""
    table = database.tables.operating["permission"]
    query = delete(table).where(table.c.principal == principal)
    wanted = query if job is None else query.where(table.c.job == job)
    return int(_keep_an_admin(database, cursor, lambda: database.change(cursor, wanted)))


def permissions(database: Database, *, principal: str | None = None) -> list[Permission]:
    """Return permissions, by principal and job."""
    c = database.tables.operating["permission"].c
    query = select(*(c[name] for name in Permission._fields)).order_by(c.principal, c.job)
    wanted = query if principal is None else query.where(c.principal == principal)
    return database.read(lambda cursor: [Permission(*row) for row in database.rows(cursor, wanted)])


def role_reasons(database: Database) -> list[RoleReasons]:
    """Return for each role that acts whether it has to say why, the lower role first."""
    c = database.tables.operating["role"].c
    query = select(*(c[name] for name in RoleReasons._fields))
    found = database.read(lambda cursor: [RoleReasons(*row) for row in database.rows(cursor, query)])
    known = {each.role: each for each in found}
    return [known.get(role.value, RoleReasons(role.value, _OPTIONAL)) for role in Role if role is not Role.VIEWER]


def roles_that_say_why(database: Database) -> frozenset[Role]:
    """Return the roles that have to give a reason for every act."""
    return frozenset(Role(each.role) for each in role_reasons(database) if each.reasons != _OPTIONAL)


def set_role_reasons(database: Database, cursor: Cursor, role: Role, reasons: str, by: str) -> None:
    """Store whether a role has to give a reason for every act."""
    table = database.tables.operating["role"]
    values = {"reasons": reasons, "set_at": database.dialect.now(), "set_by": by}
    change = update(table).where(table.c.role == role.value).values(values)
    if not database.change(cursor, change):  # somebody deleted the row
        row = {"role": role.value, "reasons": reasons, "set_by": by}
        database.dialect.insert_row(cursor, table, row)  # unless another process has just done the same
        database.change(cursor, change)


def move_permissions(database: Database, cursor: Cursor, old: str, new: str) -> int:
    """Move the permissions on a job to its new name; return how many were moved.

    If a principal already has a permission on the new name, that one is kept.
    """
    table = database.tables.operating["permission"]
    there = {row[0] for row in database.rows(cursor, select(table.c.principal).where(table.c.job == new))}
    moved = update(table).where(table.c.job == old).values(job=new)
    if there:
        database.change(cursor, delete(table).where(table.c.job == old, table.c.principal.in_(sorted(there))))
    return database.change(cursor, moved)


def forget_permissions(database: Database, cursor: Cursor, job: str) -> int:
    """Remove the permissions on a job that is forgotten, so that a later job of the same name does not inherit them."""
    table = database.tables.operating["permission"]
    return database.change(cursor, delete(table).where(table.c.job == job))


def end_logins(database: Database, cursor: Cursor, principal: str) -> int:
    """Revoke all logins of a principal."""
    table = database.tables.operating["login"]
    change = update(table).where(table.c.principal == principal, table.c.revoked_at.is_(None))
    return database.change(cursor, change.values(revoked_at=database.dialect.now()))


def _disable(database: Database, cursor: Cursor, name: str) -> None:
    table = database.tables.operating["account"]
    now = database.dialect.now()
    _require_found(database.change(cursor, update(table).where(table.c.name == name).values(disabled_at=now)), name)


def _require_found(count: int, name: str) -> None:
    if not count:
        raise NoSuchAccount(name)


def _account(database: Database, cursor: Cursor, name: str, *, is_locked: bool = False) -> Account | None:
    c = database.tables.operating["account"].c
    query = select(*(c[each] for each in Account._fields)).where(c.name == name)
    rows = database.rows(cursor, query.with_for_update() if is_locked else query)
    return Account(*rows[0]) if rows else None


def _keep_an_admin(database: Database, cursor: Cursor, change: Callable[[], Any]) -> Any:
    """Apply a change, unless it removes the last admin; then raise `LastAdmin`.

    Locks the rows of all admins first, in one order, so that the second of two concurrent changes sees the first.
    """
    before = _admins(database, cursor, is_locked=True)
    done = change()
    if before and not _admins(database, cursor):
        raise LastAdmin
    return done


def _admins(database: Database, cursor: Cursor, *, is_locked: bool = False) -> list[str]:
    """Return the principals that are admin for all jobs, without API tokens and accounts that cannot log in."""
    c, accounts_ = database.tables.operating["permission"].c, database.tables.operating["account"].c
    query = select(c.principal).where(c.job == ALL_JOBS, c.role == Role.ADMIN.value).order_by(c.principal)
    found = [row[0] for row in database.rows(cursor, query.with_for_update() if is_locked else query)]
    enabled = {
        f"{USER}{row[0]}"
        for row in database.rows(
            cursor, select(accounts_.name).where(accounts_.disabled_at.is_(None), accounts_.password.is_not(None))
        )
    }
    return [each for each in found if not each.startswith(TOKEN) and (each in enabled or not each.startswith(USER))]
