"""The requests on Lease objects that the store makes, and the meaning of their replies.

Every change is conditional: replacing an object and ending another's session name the version that was read, a renewal
and a close name the uid, and a create fails if the object exists. Any reply except success and conflict raises
`StoreUnavailable`, also a refusal (401, 403) after the start: the caller can only retry until the permissions are
corrected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from fencepost.errors import StoreRefused, StoreUnavailable
from fencepost.leases.stores.kubernetes.api import ApiAnswer, ApiServer, EventStream
from fencepost.leases.stores.kubernetes.objects import Json, selector

OK, CREATED = 200, 201
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, INVALID = 401, 403, 404, 409, 422
_MERGE_PATCH = "application/merge-patch+json"
_PAGE = 500  # what kubectl takes
_SWEEP_PAGE = 100  # a sweep is done often and need not see everything at once


@dataclass(frozen=True, slots=True)
class Leases:
    """The Leases of one namespace with our prefix."""

    api: ApiServer
    prefix: str
    call_timeout_s: float

    def get(self, name: str, *, until: float) -> Json | None:
        """Read one; None if it does not exist. The reply is as current as etcd's."""
        answer = self._call("GET", f"/{name}", until=until)
        return answer.body if _is(answer, OK, no=(NOT_FOUND,)) else None

    def create(self, body: Json, *, until: float) -> Json | None:
        """Create one; None if it already exists."""
        answer = self._call("POST", "", body, until=until)
        return answer.body if _is(answer, CREATED, no=(CONFLICT,)) else None

    def replace(self, name: str, body: Json, *, until: float) -> Json | None:
        """Replace one, if it still has the version in `body`; None if it has changed or is gone."""
        answer = self._call("PUT", f"/{name}", body, until=until)
        return answer.body if _is(answer, OK, no=(CONFLICT, NOT_FOUND)) else None

    def patch(self, name: str, body: Json, *, until: float) -> Json | None:
        """Patch one, if it has the uid in `body`; None if it has another, or is gone."""
        answer = self._call("PATCH", f"/{name}", body, until=until, kind=_MERGE_PATCH)
        if answer.status not in (CONFLICT, INVALID):
            return answer.body if _is(answer, OK, no=(NOT_FOUND,)) else None
        if (there := self.get(name, until=until)) is None or there["metadata"]["uid"] != body["metadata"].get("uid"):
            return None
        raise StoreUnavailable(f"the Kubernetes API server did not take the change: {answer.reason}")

    def delete(self, name: str, *, uid: str | None, version: str | None = None, until: float) -> bool:
        """Delete one, if it has the expected identity. Returns True if it is gone now, for any reason."""
        preconditions = {"uid": uid, "resourceVersion": version}
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in preconditions.items() if value is not None},
        }
        answer = self._call("DELETE", f"/{name}", body, until=until)
        return answer.status == NOT_FOUND or _is(answer, OK, no=(CONFLICT,))

    def page(self, *, until: float, **wanted: str) -> list[Json]:
        """List a few."""
        items: list[Json] = self._page(wanted, until, limit=_SWEEP_PAGE)["items"]
        return items

    def all(self, *, until: float, **wanted: str) -> Iterator[Json]:
        """List all with these labels, page by page."""
        following = ""
        while True:
            found = self._page(wanted, until, limit=_PAGE, following=following)
            yield from found["items"]
            if not (following := found["metadata"].get("continue", "")):
                return

    def snapshot(self, *, until: float, **wanted: str) -> tuple[list[Json], str]:
        """List, together with the version from which a watch continues without a gap."""
        found = self._page(wanted, until, limit=_PAGE)
        return found["items"], found["metadata"]["resourceVersion"]

    def watch(self, version: str, *, for_s: float, until: float, **wanted: str) -> EventStream:
        """Follow the changes after `version`."""
        query = {
            "watch": "1",
            "labelSelector": selector(self.prefix, **wanted),
            "resourceVersion": version,
            "timeoutSeconds": int(for_s) + 1,
        }
        try:
            return self.api.watch(f"{self.api.leases}?{urlencode(query)}", until=until)
        except StoreRefused as error:
            raise StoreUnavailable(str(error)) from None

    def _page(self, wanted: dict[str, str], until: float, *, limit: int, following: str = "") -> Json:
        query = {"labelSelector": selector(self.prefix, **wanted), "limit": limit, "continue": following}
        answer = self._call("GET", f"?{urlencode(query)}", until=until)
        _is(answer, OK, no=())
        answer.body["items"] = answer.body.get("items") or []
        return answer.body

    def _call(
        self, method: str, path: str, body: Json | None = None, *, until: float, kind: str = "application/json"
    ) -> ApiAnswer:
        try:
            return self.api.call(method, self.api.leases + path, body, until=until, kind=kind)
        except StoreRefused as error:  # a token file that has vanished since the start
            raise StoreUnavailable(str(error)) from None


def _is(answer: ApiAnswer, yes: int, *, no: Collection[int]) -> bool:
    """Whether the status is `yes` rather than one of `no`; any other status means unknown."""
    if answer.status == yes:
        return True
    if answer.status in no:
        return False
    raise StoreUnavailable(f"the Kubernetes API server answered {answer.status}: {answer.reason}")
