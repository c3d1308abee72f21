"""What `Authorized` returns besides the records of `fencepost.app.records`: for those who import nothing below it."""

from __future__ import annotations

from fencepost.access.access import NewApiToken
from fencepost.engine.backfilling import Backfilled
from fencepost.ledger.accounts import Account, Permission, RoleReasons
from fencepost.ledger.logins import ApiToken, Login
from fencepost.ledger.recording import Enqueued
from fencepost.ledger.removing import Forgotten
from fencepost.ledger.requests import Cancelled, Retried

__all__ = [
    "Account",
    "ApiToken",
    "Backfilled",
    "Cancelled",
    "Enqueued",
    "Forgotten",
    "Login",
    "NewApiToken",
    "Permission",
    "Retried",
    "RoleReasons",
]
