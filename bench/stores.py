"""The stores that the benchmarks run on: each with its private real server."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """A store that is up. `server` is None where nothing has to run."""

    name: str
    url: str
    host: str = ""
    port: int = 0


SERVERS = {
    "postgresql": ("testbed.postgres", "Postgres"),
    "pg advisory": ("testbed.postgres", "Postgres"),
    "mysql": ("testbed.mariadb", "MariaDB"),
    "redis": ("testbed.valkey", "Valkey"),
    "etcd": ("testbed.etcd", "Etcd"),
    "zookeeper": ("testbed.zookeeper", "ZooKeeper"),
    "kubernetes": ("testbed.kubernetes", "Kubernetes"),
}
NAMES = ["memory", "sqlite", *SERVERS]


@contextmanager
def running(name: str) -> Iterator[Place]:
    """Start the store's server, as shipped: every commit is flushed to disk where it is by default."""
    if name == "memory":
        yield Place(name, "memory://bench")
    elif name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield Place(name, f"sqlite:///{folder}/bench.db")
    else:
        module, kind = SERVERS[name]
        with getattr(importlib.import_module(module), kind)() as server:
            url = server.url.replace("postgresql:", "postgresql+advisory:") if name == "pg advisory" else server.url
            yield Place(name, url, server.host, server.port)


def in_project_environment() -> None:
    """Run again under the project's own .venv, if this Python does not have what is needed."""
    try:
        importlib.import_module("testbed")
        importlib.import_module("fencepost")
    except ImportError:
        python = Path(__file__).parent.parent / ".venv" / "bin" / "python"
        if not python.exists() or Path(sys.executable) == python:
            sys.exit("run `make setup` first")
        os.execv(python, [str(python), *sys.argv])
