"""Requests made from the description of REST, by schemathesis, to the whole application within this process.

``python -m tests.api.fuzzing --requests 100000`` is the long form: ``make fuzz-api``.

A case that schemathesis makes is sent, and so are mixtures of several: making it takes much longer than to send it.
Each answer has to be one that the description has: its status, its type and its schema. 500 and tracebacks never are.
Acts are really done, on a ledger of their own; those that would end the API token that asks are left out of the fuzz.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import hypothesis
import jsonschema_rs
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from fencepost import App
from fencepost.access import Access
from fencepost.app.composing import publish
from fencepost.core.problems import TYPES
from fencepost.core.rights import Scope
from fencepost.web import web
from tests.api.conftest import settle
from tests.web.asking import Browser, asked

_MIXED = 4  # requests for each case that schemathesis makes
_TIMES = (  # at both ends of all dates, of what an integer of a database holds, and of the calendar
    "0001-01-01T00:00:00+23:00",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "1970-01-01T00:00:00+14:00",
    "2199-12-31T23:59:59Z",
    "2200-01-01T00:00:00-12:00",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999-23:59",
)
_DURATIONS = (
    "0s",
    "5",
    "60000d",
    "70000d",
    "800000d",
    "3000000d",
    "999999999d",
    "99999999999d",
    "9" * 39 + "d",
    "1e9d",
)
EXTREMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("at", "since", "until", "first", "last", "before"), _TIMES),
    **dict.fromkeys(("delay", "duration", "expires_in"), _DURATIONS),
}
KNOWN: dict[str, tuple[Any, ...]] = {
    "run_id": (1, 2, 3, 4),
    "letter_id": (1,),
    "name": ("settle", "report/part", "eve"),
    "schedule_id": ("settle", "report/part", "made-here"),
    "token_id": ("0",),
}
_FITS = {"job": "settle", "again": True, "reason": "why", "queue": "mail", "name": "ci", "role": "viewer", "limit": 5}
LEFT_OUT = {("POST", "/api/v1/restored/as-copy"), ("POST", "/api/v1/restored/accept")}


class Fuzz:
    """Sends cases, and remembers what was wrong with the answers."""

    def __init__(self, url: str) -> None:
        from fencepost import cron, every

        self.app = App(url)
        self.app.job(cron("30 2 * * *", tz="Europe/Berlin"), name="settle")(settle)
        self.app.job(every("1h"), name="report/part")(settle)
        publish(self.app)
        self._pages = web(self.app)
        access = Access(self.app.ledger, Scope.direct("root"))
        self._secret = access.add_api_token("fuzz", "admin", expires_in="1d").secret
        access.give("host:another-admin", "admin")
        access.put_account("eve", None)
        for _ in range(3):
            self.app.operations.trigger("settle", by="ann", again=True)
        self._browser = Browser(self._pages)
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._loop = asyncio.new_event_loop()
        self.description = json.loads(self.send(Sent("GET", "/api/v1/openapi.json"))[2])
        self._validators: dict[str, Any] = {}

    def send(self, sent: Sent) -> tuple[int, str, str]:
        return self._loop.run_until_complete(self._sent(sent))

    async def _sent(self, sent: Sent) -> tuple[int, str, str]:
        said = [("Host", "127.0.0.1"), ("Authorization", f"Bearer {self._secret}"), *sent.headers.items()]
        said.append(("Content-Length", str(len(sent.body))))
        got = await asked(self._pages, self._browser.scope(sent.method, sent.target, said), [sent.body])
        return got.status, got.header("content-type"), got.text

    def run(self, requests: int) -> None:
        """Send about so many requests, spread over all operations, and those with extreme times; the same each time."""
        schema = schemathesis.openapi.from_dict(self.description)
        operations = [each.ok() for each in schema.get_all_operations()]
        chosen = [each for each in operations if (each.method.upper(), each.path) not in LEFT_OUT]
        each_has = -(-requests // len(chosen))
        for operation in chosen:
            self._fuzz(operation, each_has)
        for path in ("runs?limit=500", "schedules?limit=500", "journal?limit=500", "audit?limit=500", "pauses", "now"):
            status, _, text = self.send(Sent("GET", f"/api/v1/{path}"))  # what was accepted breaks no list
            if status != 200:
                self.wrong.append(f"the list of {path} at the end -> {status}: {text[:300]}")
        self._loop.close()

    def _fuzz(self, operation: Any, requests: int) -> None:
        """Send cases that schemathesis makes, which takes most of the time, and mixtures of them, which take none."""
        cases = _cases(operation, max(2, requests // _MIXED))
        made = list(itertools.islice(_mixed(operation, cases, requests), requests))
        made += (_sent(operation, each) for each in _at_the_ends(operation, Random(operation.path)))
        self._loop.run_until_complete(self._send_all(operation, made))  # one task: it keeps its threads

    async def _send_all(self, operation: Any, made: list[Sent]) -> None:
        for each in made:
            status, kind, text = await self._sent(each)
            self.statuses[status] += 1
            if wrong := self._judge(operation, status, kind, text):
                where = f"{each.method} {each.target[:300]} {each.body[:300]!r}"
                self.wrong.append(f"{where} -> {status}: {wrong}: {text[:300]}")

    def _judge(self, operation: Any, status: int, kind: str, text: str) -> str | None:
        if status >= 500 or "Traceback" in text:
            return "it failed"
        if kind == "application/problem+json" and json.loads(text)["type"] not in TYPES:
            return "the type of this problem is not listed"
        if status in (400, 404, 405, 413, 414) and kind == "application/problem+json":
            return None  # a path that is another one, or none, by its values
        described = operation.definition.raw["responses"].get(str(status))
        if described is None:
            return "this status is not described"
        content = described["content"]
        if kind not in content:
            return f"the type {kind!r} is not described"
        return self._mismatch(content[kind]["schema"], text)

    def _mismatch(self, schema: dict[str, Any], text: str) -> str | None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            whole = {**schema, "components": self.description["components"]}
            self._validators[key] = jsonschema_rs.validator_for(whole)
        error = next(iter(self._validators[key].iter_errors(json.loads(text))), None)
        return None if error is None else f"not as described: {str(error)[:200]}"


class Parts(NamedTuple):
    """The parts of a request, as schemathesis has made them."""

    path: dict[str, Any]
    query: dict[str, Any]
    headers: dict[str, str]
    body: bytes
    has_body: bool


class Sent(NamedTuple):
    """A request."""

    method: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


def _cases(operation: Any, count: int) -> list[Parts]:
    """Return about so many cases, that fit the description and that do not."""
    modes = list(schemathesis.GenerationMode)
    strategy = hypothesis.strategies.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))
    found: list[Parts] = []

    @hypothesis.seed(7)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @hypothesis.given(case=strategy)
    def once(case: Any) -> None:
        body, headers = _body(case)
        for name, value in (case.headers or {}).items():
            headers[str(name)] = str(value).encode("latin-1", "replace").decode("latin-1").replace("\n", " ")
        path, query = dict(case.path_parameters or {}), dict(case.query or {})
        found.append(Parts(path, query, headers, body, bool(headers.get("Content-Type"))))

    once()
    return found


def _mixed(operation: Any, cases: list[Parts], count: int) -> Iterator[Sent]:
    """Yield each case, then mixtures: the path, query and body of different ones, with ids that exist."""
    yield from (_sent(operation, each) for each in cases)
    dice = Random(operation.path)
    for _ in range(count):
        path, query, rest = (dice.choice(cases) for _ in range(3))
        known = {name: dice.choice(KNOWN[name]) for name in path.path if name in KNOWN and dice.random() < 0.7}
        fewer = dict(dice.sample(sorted(query.query.items(), key=repr), dice.randrange(len(query.query) + 1)))
        mixed = Parts({**path.path, **known}, fewer, rest.headers, _damaged(dice, rest.body), rest.has_body)
        yield _sent(operation, mixed)


def _at_the_ends(operation: Any, dice: Random) -> Iterator[Parts]:
    """Yield requests that fit but for their times and durations, one for each of these, and some with two."""
    raw = operation.definition.raw
    path = {name: KNOWN[name][0] for name in KNOWN if f"{{{name}}}" in operation.path}
    names = {each["name"] for each in raw.get("parameters", ()) if each["in"] == "query"}
    for name in sorted(names & set(EXTREMES)):
        for value in EXTREMES[name]:
            query = {"of" if "of" in names else "job": "settle"} if names & {"of", "job"} else {}
            yield Parts(path, {**query, name: value}, {}, b"", has_body=False)
    schema = raw.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    fields = _properties(operation, schema)
    known = {name: _FITS[name] for name in fields if name in _FITS}
    for name in sorted(set(fields) & set(EXTREMES)):
        for value in EXTREMES[name]:
            others = {other: dice.choice(EXTREMES[other]) for other in ("first", "last") if other in fields}
            body = json.dumps({**known, **others, name: value}).encode()
            yield Parts(path, {}, {"Content-Type": "application/json"}, body, has_body=True)


def _properties(operation: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body."""
    whole = operation.schema.raw_schema["components"]["schemas"]
    for each in (schema, *schema.get("anyOf", ())):
        if "$ref" in each:
            return dict(whole[each["$ref"].rpartition("/")[2]].get("properties", {}))
    return dict(schema.get("properties", {}))


def _damaged(dice: Random, body: bytes) -> bytes:
    """Return a body as it is, or cut off, or with a byte that is another one."""
    if not body or dice.random() < 0.7:
        return body
    at = dice.randrange(len(body))
    return body[:at] if dice.random() < 0.5 else body[:at] + bytes([dice.randrange(256)]) + body[at + 1 :]


def _sent(operation: Any, parts: Parts) -> Sent:
    path = operation.path
    for name, value in parts.path.items():
        path = path.replace(f"{{{name}}}", quote(_text(value), safe=""))
    query = urlencode(_flat(parts.query), doseq=True, errors="replace")
    headers = {name: value for name, value in parts.headers.items() if name.lower() != "authorization"}
    return Sent(operation.method.upper(), f"{path}?{query}" if query else path, parts.body, headers)


def _text(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode() or "x"


def _flat(query: Any) -> dict[str, Any]:
    return {_text(name): value if isinstance(value, list) else _text(value) for name, value in dict(query).items()}


def _body(case: Any) -> tuple[bytes, dict[str, str]]:
    kind = type(case.body).__name__
    if kind == "NotSet":
        return b"", {}
    raw = case.body if isinstance(case.body, bytes) else json.dumps(case.body, default=str).encode()
    return raw, {"Content-Type": "application/json"}


def fuzz(requests: int) -> Fuzz:
    """Fuzz the application on a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Fuzz(f"sqlite:///{folder}/fuzz.db")
        try:
            made.run(requests)
        finally:
            made.app.close()
    return made


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=100_000)
    done = fuzz(parser.parse_args().requests)
    print(f"{sum(done.statuses.values())} requests: {dict(sorted(done.statuses.items()))}; {len(done.wrong)} wrong")
    for each in done.wrong[:20]:
        print(f"  {each}")
    return 1 if done.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
