"""The checks at the start of the store: version, permissions, and what limits the store's promises."""

from __future__ import annotations

import re

from kazoo.exceptions import NoNodeError

from fencepost.errors import StoreRefused
from fencepost.leases.stores.zookeeper.link import Link, NoRights
from fencepost.leases.stores.zookeeper.nodes import ZooKeeperPaths
from fencepost.leases.stores.zookeeper.transactions import commit, create, delete
from fencepost.leases.urls import StoreUrl

_OLDEST = (3, 5)


def examine(link: Link, paths: ZooKeeperPaths, unique: str, url: StoreUrl, deadline: float) -> tuple[str, ...]:
    """Create the root if it is missing, check the permissions, and return warnings."""
    try:
        for path in (paths.leases, paths.sessions):
            _try_rights(link, path, unique, deadline)
    except (NoRights, NoNodeError) as error:
        raise StoreRefused(f"ZooKeeper does not let us write under {paths.leases}: {_advice(url)}") from error
    return _doubts_about(link.server_says(b"srvr"))


def _try_rights(link: Link, path: str, unique: str, deadline: float) -> None:
    link.ask(lambda kazoo: kazoo.ensure_path_async(path), deadline)
    probe = f"{path}/rights-{unique}"
    commit(link, [create(probe), delete(probe)], deadline)
    link.ask(lambda kazoo: kazoo.get_children_async(path), deadline)


def _doubts_about(status: str) -> tuple[str, ...]:
    """Check the server's status; a server that does not allow the status command passes."""
    version = re.search(r"Zookeeper version: (\d+)\.(\d+)", status)
    if version is not None and tuple(map(int, version.groups())) < _OLDEST:
        raise StoreRefused(f"ZooKeeper {'.'.join(version.groups())} is too old: Fencepost needs 3.5 or newer")
    if "Mode: standalone" in status:
        return ("ZooKeeper runs standalone: locks are lost with its disk, and unavailable while it is down",)
    return ()


def _advice(url: StoreUrl) -> str:
    if url.user is None:
        return "if the nodes belong to a user, write it into the URL: zookeeper://user:password@host"
    return f"check the password of user {url.user!r} and the rights (ACL) of these nodes"
