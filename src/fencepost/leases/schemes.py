"""The table of URL schemes: which module implements each, and which extra installs its driver."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from fencepost.core.runtime import Runtime
from fencepost.errors import InvalidUrl, MissingExtra
from fencepost.leases.store import LeaseStore
from fencepost.leases.urls import StoreUrl


@dataclass(frozen=True, slots=True)
class Scheme:
    """The module of a scheme's store, and the pip extra that installs its driver."""

    module: str
    extra: str | None = None


SCHEMES = {
    "memory": Scheme("memory"),
    "sqlite": Scheme("sqlite"),
    "postgresql": Scheme("postgres", "postgres"),
    "postgresql+advisory": Scheme("postgres_advisory", "postgres"),
    "mysql": Scheme("mysql", "mysql"),
    "mariadb": Scheme("mysql", "mysql"),
    "redis": Scheme("redis", "redis"),
    "rediss": Scheme("redis", "redis"),
    "redis+sentinel": Scheme("redis", "redis"),
    "valkey": Scheme("redis", "redis"),
    "etcd": Scheme("etcd", "etcd"),
    "etcds": Scheme("etcd", "etcd"),
    "zookeeper": Scheme("zookeeper", "zookeeper"),
    "kubernetes": Scheme("kubernetes", "kubernetes"),
}

_ALIASES = {"postgres": "postgresql", "zk": "zookeeper", "k8s": "kubernetes"}


def store_from_url(text: str, runtime: Runtime) -> LeaseStore:
    """Create the store for a URL, without connecting to the server yet."""
    url = StoreUrl.parse(text)
    scheme = SCHEMES.get(_ALIASES.get(url.scheme, url.scheme))
    if scheme is None:
        raise InvalidUrl(f"there is no store for {url.scheme}://; there are: {', '.join(sorted(SCHEMES))}")
    return _factory(scheme, url)(url, runtime)


def try_store(text: str, runtime: Runtime) -> None:
    """Start the store a URL names, and shut it down: it says what is wrong with it, or makes its tables."""
    store = store_from_url(text, runtime)
    try:
        store.start()
    finally:
        store.shutdown()


def _factory(scheme: Scheme, url: StoreUrl) -> Callable[[StoreUrl, Runtime], LeaseStore]:
    """Import the store's module; it exports ``from_url(url, runtime)``."""
    name = f"fencepost.leases.stores.{scheme.module}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if scheme.extra is None or (error.name or "").startswith("fencepost"):
            raise
        raise MissingExtra(
            f"{url.scheme}:// needs the package {error.name!r}: pip install './fencepost[{scheme.extra}]' from a clone"
        ) from None
    return cast("Callable[[StoreUrl, Runtime], LeaseStore]", module.from_url)
