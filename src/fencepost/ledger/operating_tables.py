"""The columns of the tables for operating jobs: accounts, permissions, audit, logs, figures, pauses.

`ledger/tables.py` combines them with the others. The migration step that created them describes each table.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Integer, LargeBinary, String

from fencepost.schema.columns import key, number, text

Columns = tuple[Column[Any], ...]


def account() -> Columns:
    return (
        Column("name", key(120), primary_key=True),
        Column("password", text()),
        Column("created_at", number(), nullable=False),
        Column("created_by", text(), nullable=False),
        Column("changed_at", number(), nullable=False),
        Column("disabled_at", number()),
    )


def permission() -> Columns:
    return (
        Column("principal", key(130), primary_key=True),
        Column("job", key(120), primary_key=True),
        Column("role", String(10), nullable=False),
        Column("given_at", number(), nullable=False),
        Column("given_by", text(), nullable=False),
    )


def role() -> Columns:
    return (
        Column("role", key(10), primary_key=True),
        Column("reasons", String(10), nullable=False),
        Column("set_at", number()),
        Column("set_by", text()),
    )


def login() -> Columns:
    return (
        Column("secret_hash", key(64), primary_key=True),
        Column("principal", key(130), nullable=False),
        Column("how", String(20), nullable=False),
        Column("address", text()),
        Column("created_at", number(), nullable=False),
        Column("seen_at", number(), nullable=False),
        Column("expires_at", number(), nullable=False),
        Column("revoked_at", number()),
    )


def api_token() -> Columns:
    return (
        Column("id", key(32), primary_key=True),
        Column("secret_hash", key(64), nullable=False),
        Column("name", text(), nullable=False),
        Column("created_at", number(), nullable=False),
        Column("created_by", text(), nullable=False),
        Column("expires_at", number(), nullable=False),
        Column("used_at", number()),
        Column("revoked_at", number()),
    )


def answer() -> Columns:
    return (
        Column("principal", key(130), primary_key=True),
        Column("request_key", key(60), primary_key=True),
        Column("path", text(), nullable=False),
        Column("body_hash", key(64), nullable=False),
        Column("status", Integer(), nullable=False),
        Column("body", text(), nullable=False),
        Column("at", number(), nullable=False),
    )


def audit() -> Columns:
    return (
        Column("n", number(), primary_key=True, autoincrement=False),
        Column("entry", text(), nullable=False),
        Column("prev", key(64), nullable=False),
        Column("hash", key(64), nullable=False),
        Column("at", number(), nullable=False),
        Column("who", key(160), nullable=False),
        Column("act", key(60), nullable=False),
        Column("job", key(120)),
        Column("run_id", number()),
    )


def audit_head() -> Columns:
    return (
        Column("only", Integer(), primary_key=True, autoincrement=False),
        Column("n", number(), nullable=False),
        Column("hash", key(64), nullable=False),
        Column("floor_n", number(), nullable=False),
        Column("floor_hash", key(64), nullable=False),
    )


def log_chunk() -> Columns:
    return (
        Column("run_id", number(), primary_key=True, autoincrement=False),
        Column("attempt", Integer(), primary_key=True, autoincrement=False),
        Column("seq", Integer(), primary_key=True, autoincrement=False),
        Column("first_at", number(), nullable=False),
        Column("lines", Integer(), nullable=False),
        Column("bytes", Integer(), nullable=False),
        Column("dropped", number(), nullable=False),
        Column("text", LargeBinary(), nullable=False),
    )


def run_search() -> Columns:
    return (
        Column("name", key(60), primary_key=True),
        Column("value", key(120), primary_key=True),
        Column("run_id", number(), primary_key=True, autoincrement=False),
    )


def job_hour() -> Columns:
    return (
        Column("job", key(120), primary_key=True),
        Column("hour", number(), primary_key=True, autoincrement=False),
        Column("node", key(32), primary_key=True),
        Column("outcomes", text(), nullable=False),
        Column("histogram", text(), nullable=False),
    )


def acknowledged() -> Columns:
    return (
        Column("what", key(40), primary_key=True),
        Column("id", key(160), primary_key=True),
        Column("by", text(), nullable=False),
        Column("at", number(), nullable=False),
        Column("until", number()),
        Column("note", text()),
    )


def pause() -> Columns:
    return (
        Column("queue", key(120), primary_key=True),
        Column("paused_at", number(), nullable=False),
        Column("until", number()),
        Column("by", text(), nullable=False),
        Column("reason", text()),
    )


OPERATING = {
    "account": account,
    "permission": permission,
    "role": role,
    "login": login,
    "api_token": api_token,
    "answer": answer,
    "audit": audit,
    "audit_head": audit_head,
    "log_chunk": log_chunk,
    "run_search": run_search,
    "job_hour": job_hour,
    "acknowledged": acknowledged,
    "pause": pause,
}
"""The columns of each table, by its name without the prefix."""
