"""Fencepost: scheduled and batch jobs on many instances of an application.

Each due time is started once, a runner that has lost its right to run cannot write, and effects that commit with the
run's own end land once::

    from fencepost import App, cron

    app = App()                                   # sqlite:///fencepost.db; or postgresql://…, mysql://…, FENCEPOST_URL

    @app.job(cron("*/5 * * * *", tz="Asia/Seoul"), timeout="10m")
    def settle(run):
        with run.transaction() as tx:             # fenced
            tx.execute(...)

Run it with ``fencepost run module:app`` on as many machines as you like, or inside your own process with
``app.start()``. For locks and elections alone see `fencepost.locks`, for bulk work `fencepost.bulk`, for fences outside
the ledger `fencepost.fences`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fencepost import locks
from fencepost.errors import (
    FencepostError,
    LeaseLost,
    LockHeld,
    NotAcquired,
    Stopped,
    StoreUnavailable,
    TickDone,
)

if TYPE_CHECKING:
    from fencepost import bulk, fences
    from fencepost.app import App
    from fencepost.core.schedule import at, cron, every
    from fencepost.core.secret import Secret
    from fencepost.core.verdicts import Cancel, Fail, Retry, Skip
    from fencepost.engine.run import Run, Window, current_run
    from fencepost.fence.idempotency import idempotent, once
    from fencepost.fence.sequence import Sequence
    from fencepost.fence.work_key import work_key

__version__ = "0.1.0.dev0"

__all__ = [
    "App",
    "Cancel",
    "Fail",
    "FencepostError",
    "LeaseLost",
    "LockHeld",
    "NotAcquired",
    "Retry",
    "Run",
    "Secret",
    "Sequence",
    "Skip",
    "Stopped",
    "StoreUnavailable",
    "TickDone",
    "Window",
    "__version__",
    "at",
    "bulk",
    "cron",
    "current_run",
    "every",
    "fences",
    "idempotent",
    "locks",
    "once",
    "work_key",
]

# Imported when first asked for: a command that only takes a lock must not wait for all of SQLAlchemy.
_ELSEWHERE = {
    "App": "fencepost.app",
    "Cancel": "fencepost.core.verdicts",
    "Fail": "fencepost.core.verdicts",
    "Retry": "fencepost.core.verdicts",
    "Run": "fencepost.engine.run",
    "Secret": "fencepost.core.secret",
    "Sequence": "fencepost.fence.sequence",
    "Skip": "fencepost.core.verdicts",
    "Window": "fencepost.engine.run",
    "at": "fencepost.core.schedule",
    "cron": "fencepost.core.schedule",
    "current_run": "fencepost.engine.run",
    "every": "fencepost.core.schedule",
    "idempotent": "fencepost.fence.idempotency",
    "once": "fencepost.fence.idempotency",
    "work_key": "fencepost.fence.work_key",
}
_MODULES = {"bulk": "fencepost.bulk", "fences": "fencepost.fences"}


def __getattr__(name: str) -> Any:
    where = _MODULES.get(name) or _ELSEWHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(where)
    except AttributeError as error:  # it would be taken for ours, and hide what is wrong
        raise ImportError(f"{where} cannot be imported: {error}") from error
    value = globals()[name] = module if name in _MODULES else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELSEWHERE, *_MODULES})
