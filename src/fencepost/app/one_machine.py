"""Warns that only one machine sees a ledger in a SQLite file: in two containers it is two ledgers.

Then every due time runs in each of them, and nothing else reports it. Outside a container it is a warning, as for
``memory://``; inside a container it is an error. ``?accept_risk=one-machine`` in the URL accepts it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.core.events import Event, What

if TYPE_CHECKING:
    from fencepost.app.application import App

RISK = "one-machine"
_ROOT = Path("/")
_MARKS = (".dockerenv", "run/.containerenv")
_CGROUP = re.compile(r"docker|kubepods|containerd|crio|libpod|lxc|garden|ecs/")


def container(environment: Mapping[str, str] | None = None, root: Path | None = None) -> str | None:
    """Return what this process runs in, "Kubernetes" or "a container"; None if it shows no sign of either."""
    root = _ROOT if root is None else root
    known = os.environ if environment is None else environment
    if "KUBERNETES_SERVICE_HOST" in known:
        return "Kubernetes"
    if known.get("container") or any((root / mark).exists() for mark in _MARKS):
        return "a container"
    try:
        groups = (root / "proc/1/cgroup").read_text()
    except OSError:
        return None
    return "a container" if _CGROUP.search(groups) else None


def warn_of_one_machine(app: App) -> None:
    """Emit the warning, or inside a container the error, when a node starts."""
    url = app.ledger.url
    if url.kind != "sqlite" or RISK in url.store.accepted_risks():
        return
    if (where := container()) is None:
        reason = f"{url.path} is seen by this machine only: nodes on other machines would have a ledger of their own"
        app.emit(Event(What.STORE_WARNING, reason=reason))
        return
    reason = (
        f"this node runs in {where}, and its ledger is a file: {url.path}. Every container with a file of its own has "
        "a ledger of its own, and runs every due time once more. Name one database server for all of them "
        "(FENCEPOST_URL=postgresql://…); if there is only one, or all share the folder on one machine, say so in the "
        f"URL: {url.store}?accept_risk={RISK}"
    )
    app.emit(Event(What.LEDGER_UNSHARED, reason=reason))
