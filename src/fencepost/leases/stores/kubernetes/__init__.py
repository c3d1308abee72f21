"""Leases as Lease objects of a Kubernetes cluster, without another server.

URL::

    kubernetes://                                       in a pod: its service account and namespace;
                                                        else $KUBECONFIG or ~/.kube/config
    kubernetes://NAMESPACE
    kubernetes://NAMESPACE?kubeconfig=PATH&context=NAME&prefix=fencepost

**Grade**: *consensus*, as good as the cluster's etcd (a k3s on SQLite is only as good as that file).

**Survives**: the death of any minority of etcd members, restarts of API servers, Leases deleted by hand (tokens still
increase), rotation of the pod's token, clocks that differ (no decision compares them).

**Does not survive**: a restored etcd backup (grants and tokens since then are lost; tokens still increase, by the
clock); a Lease deleted by hand *together* with API servers whose clocks differ by more than the time since its last
grant.

**Expiry** is judged by the contender, because the API server has no clock for it: the contender must see the holder's
session unchanged for a full ttl. So a caller that does not wait cannot take over from a dead holder; use a wait of more
than a ttl. A caller that was already waiting takes over within the ttl plus a second.

**Required settings**: a Role with get, list, watch, create, update, patch, delete on leases.coordination.k8s.io in the
namespace. Renewal takes one request per session and interval; taking and releasing a free lock takes one each.
"""

from __future__ import annotations

import functools

from fencepost.core.runtime import Runtime
from fencepost.errors import InvalidUrl
from fencepost.leases.stores.kubernetes.config import find_api
from fencepost.leases.stores.kubernetes.objects import DNS_LABEL, LONGEST_PREFIX
from fencepost.leases.stores.kubernetes.store import KubernetesStore
from fencepost.leases.urls import StoreUrl

__all__ = ["KubernetesStore", "from_url"]

_OPTIONS = ("kubeconfig", "context", "prefix")


def from_url(url: StoreUrl, runtime: Runtime) -> KubernetesStore:
    """Return the store of a namespace. The configuration is read when it is first needed."""
    url.only_options(_OPTIONS)
    find = functools.partial(
        find_api,
        namespace=_namespace(url),
        kubeconfig=url.options.get("kubeconfig") or None,
        context=url.options.get("context") or None,
    )
    return KubernetesStore(functools.cache(find), runtime, prefix=_prefix(url), call_timeout_s=url.call_timeout_s)


def _namespace(url: StoreUrl) -> str | None:
    if url.path.strip("/") or url.user or url.password or len(url.hosts) > 1 or any(port for _, port in url.hosts):
        raise InvalidUrl("a Kubernetes URL names a namespace and no server: kubernetes://NAMESPACE?kubeconfig=PATH")
    namespace = url.hosts[0][0] if url.hosts else None
    if namespace is not None and not DNS_LABEL.fullmatch(namespace):
        raise InvalidUrl(f"{namespace!r} is not a valid namespace: use lower-case letters, digits and dashes")
    return namespace


def _prefix(url: StoreUrl) -> str:
    prefix = url.options.get("prefix", "fencepost")
    if not DNS_LABEL.fullmatch(prefix) or len(prefix) > LONGEST_PREFIX:
        raise InvalidUrl(
            f"prefix {prefix!r} must be lower-case letters, digits and dashes, {LONGEST_PREFIX} at the most"
        )
    return prefix
