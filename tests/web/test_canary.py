"""Nothing of other jobs leaves by any route: the router is walked, with ids that exist, by one who may see one job.

A route that is added is walked, too. A parameter of a path that this file does not know fails it.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from fencepost.access import HostPrincipal
from fencepost.web import live, web
from fencepost.web.api.routes import ApiRoute
from fencepost.web.routes import is_open, spelled_routes
from tests.access.scene import MARK, MINE, NOTHING, OTHERS, Scene, Target, scene
from tests.api.canary_bodies import body_of, query_of
from tests.web.asking import FROM_OUR_PAGES, Answer, Browser, asked

PATH = {
    **dict.fromkeys(("run_id", "letter_id"), lambda target: str(target.run)),
    **dict.fromkeys(("job", "name"), lambda target: target.job),
    **dict.fromkeys(("id", "schedule_id"), lambda target: target.schedule),
    "token_id": lambda _: "x",
    "role": lambda _: "operator",
    "node": lambda _: "n2",
    "form": lambda target: "csv" if target.run % 2 else "json",
}
FORM = {"state": "dead", "attempt": "0", "reason": "why", "first": "2020-01-01T00:00Z", "last": "2020-01-01T03:00Z"}
FRAGMENT = ("Fencepost-Fragment", "1")


@pytest.fixture(params=["sqlite", "mysql"])  # on MariaDB, whose usual collations take "Settle" and "settle" for one
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stage(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(live, "ASK_EVERY_S", 0.01)
    monkeypatch.setattr("fencepost.web.doors.HOST_STREAM_S", 0.05)  # a stream ends, and is read to its end
    yield from scene(ledger_url)


class Request(NamedTuple):
    scope: dict[str, Any]
    body: bytes


class Walk:
    """Asks every route about a target, and looks at every byte of the answers."""

    def __init__(self, stage: Scene) -> None:
        self.browser = Browser(web(stage.app, auth=lambda _: HostPrincipal("ann", {MINE: "admin"})))
        self.runs = [each.run for each in stage.others.values()]
        self.asked: set[str] = set()
        self.acts: list[int] = []

    def about(self, target: Target) -> dict[str, int]:
        """Return the statuses, by what was asked; fail if there is anything of other jobs."""
        return asyncio.run(self._about(target))  # one task for all: it keeps its threads

    async def _about(self, target: Target) -> dict[str, int]:
        found: dict[str, int] = {}
        for route in self.browser.app._routes:
            for spelled in spelled_routes(route):
                for name, method, request in self._requests(route, spelled, target):
                    answer = await asked(self.browser.app, request.scope, [request.body])
                    found[name] = answer.status
                    self._look(name, answer, target)
                    self.acts += [answer.status] if method != "GET" and "/api/" in spelled else []
                self.asked.add(spelled)
        return found

    def _requests(self, route: Any, spelled: str, target: Target) -> Iterator[tuple[str, str, Request]]:
        method, path = spelled.split(" ")
        path = re.sub(
            r"\{(\w+)(:path)?(?::int)?\}",
            lambda match: PATH[match[1]](target) if match[2] else _short(match[1], target),
            path,
        )
        if isinstance(route, ApiRoute):
            body = body_of(route, target) or b""
            for number, query in enumerate(query_of(route, target)):
                yield f"{spelled} {number}", method, self._request(method, f"{path}?{query}", body, "application/json")
        elif method == "GET":
            for number, query in enumerate(_queries(target)):
                yield f"{spelled} {number}", method, self._request(method, f"{path}?{query}", fragment=number == 1)
        elif not is_open(route):
            form = FORM | {"job": target.job, "id": target.schedule, "confirm": str(target.run), "principal": "user:x"}
            kind = "application/x-www-form-urlencoded"
            yield spelled, method, self._request(method, path, urlencode(form).encode(), kind)

    def _request(
        self, method: str, target: str, body: bytes = b"", kind: str = "", *, fragment: bool = False
    ) -> Request:
        headers = [("Host", "127.0.0.1"), FROM_OUR_PAGES, ("Content-Length", str(len(body)))]
        headers += [("Content-Type", kind)] if body else []
        return Request(self.browser.scope(method, target, headers + ([FRAGMENT] if fragment else [])), body)

    def _look(self, name: str, answer: Answer, target: Target) -> None:
        text = answer.body.decode() + repr(answer.headers)
        if name.startswith("GET /api/v1/openapi.json"):
            return  # its examples are the same for all
        assert answer.status < 500, (name, text)
        assert MARK not in text, (name, target, text)
        text = text.replace(str(target.run), "<said>")  # also as %3A770001
        for said in (target.job, target.schedule):
            text = re.sub(rf"(?<![\w-]){re.escape(said)}(?![\w-])", "<said>", text)
        others = [each for each in OTHERS if re.search(rf"(?<![\w/-]){re.escape(each)}(?![\w/-])", text)]
        assert not others, (name, target, others, text)
        assert not [run for run in self.runs if str(run) in text], (name, target, text)


def _short(name: str, target: Target) -> str:
    """Return a value that has no slash: the name of an account, an id."""
    return "eve" if name == "name" else PATH[name](target)


def _queries(target: Target) -> list[str]:
    """Return what the pages can be asked about a target: a find box, a job and a time, an edge of a list."""
    return [
        f"q=job:{target.job}&job={target.job}&name={target.job}&id={target.schedule}&at=2020-01-01T00:00Z&tz=own",
        f"q=id:{target.run}&job={target.schedule}&run={target.run}",
        f"q=retry-of:{target.run}&before={target.run}&first=2020-01-01T00:00Z&last=2020-01-01T03:00Z",
    ]


@pytest.mark.timeout(300)  # hundreds of requests, on a machine that may be busy
def test_no_route_shows_anything_of_other_jobs_and_they_look_as_if_they_did_not_exist(stage: Scene, kind: str) -> None:
    walk = Walk(stage)
    targets = [stage.others[name] for name in (("Settle", "settle/part", "settl") if kind == "sqlite" else ("Settle",))]
    nothing = walk.about(NOTHING._replace(run=999_999))
    for target in targets:
        found = walk.about(target)
        # The id of a schedule is one for the whole ledger, so that of another one cannot be made again.
        differing = {name for name in found if found[name] != nothing[name] and not name.startswith("PUT ")}
        assert differing == set(), [(name, found[name], nothing[name]) for name in differing]
    assert len(walk.asked) > 80
    assert sum(status != 422 for status in walk.acts) > 0.6 * len(walk.acts)  # or nothing would have been asked
