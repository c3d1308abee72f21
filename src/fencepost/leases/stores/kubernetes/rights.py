"""The checks before the first lock: credentials, permissions, and whether the namespace exists.

Nothing is written: access reviews check the permissions, and a dry run of a create checks the namespace.
"""

from __future__ import annotations

from fencepost.core.grants import Session
from fencepost.errors import StoreRefused, StoreUnavailable
from fencepost.leases.stores.kubernetes.api import ApiAnswer, ApiServer
from fencepost.leases.stores.kubernetes.objects import Json, new_session
from fencepost.leases.stores.kubernetes.requests import FORBIDDEN, NOT_FOUND, UNAUTHORIZED

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SERVER_ERRORS = range(500, 600)


def check_rights(api: ApiServer, *, prefix: str, until: float) -> None:
    """Raise `StoreRefused` with one sentence on what is missing."""
    lacking = [verb for verb in VERBS if not _may(api, verb, until)]
    namespace = api.address.namespace
    if lacking:
        raise StoreRefused(
            f"these credentials may not {', '.join(lacking)} leases.coordination.k8s.io in namespace {namespace!r}: "
            "bind the Role shown in the documentation of this store to the service account"
        )
    probe = new_session(prefix, Session("probe", "fencepost", 1.0), now_us=0)
    answer = _answered(api.call("POST", f"{api.leases}?dryRun=All", probe, until=until))
    if answer.status == NOT_FOUND:
        raise StoreRefused(f"Leases cannot be kept in namespace {namespace!r}: {answer.reason}")
    if answer.status == FORBIDDEN:
        raise StoreRefused(f"the Kubernetes API server forbids Leases in namespace {namespace!r}: {answer.reason}")


def _may(api: ApiServer, verb: str, until: float) -> bool:
    answer = _answered(api.call("POST", _REVIEWS, _review(api.address.namespace, verb), until=until))
    if answer.status == FORBIDDEN:
        return True  # access reviews are not allowed here: the first real call will show it
    return bool(answer.body.get("status", {}).get("allowed", True))


def _review(namespace: str, verb: str) -> Json:
    wanted = {"namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases"}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }


def _answered(answer: ApiAnswer) -> ApiAnswer:
    if answer.status == UNAUTHORIZED:
        raise StoreRefused(
            "the Kubernetes API server does not accept the credentials (401): "
            "the token is wrong, expired or revoked, or the client certificate is not known to it"
        )
    if answer.status in _SERVER_ERRORS:
        raise StoreUnavailable(f"the Kubernetes API server answered {answer.status}: {answer.reason}")
    return answer
