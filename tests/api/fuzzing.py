"""Requests made from the description of REST, by schemathesis, to the whole application within this process.

``python -m tests.api.fuzzing --requests 100000`` is the long form: ``make fuzz-api``.

Each answer has to be one that the description has: its status, its type and its schema. 500 and tracebacks never are.
Acts are really done, on a ledger of their own; those that would end the API token that asks are left out of the fuzz.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import warnings
from collections import Counter
from typing import Any
from urllib.parse import quote, urlencode

import hypothesis
import jsonschema_rs
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from fencepost import App
from fencepost.access import Access
from fencepost.app.composing import publish
from fencepost.core.rights import Scope
from fencepost.web import web
from tests.api.conftest import settle
from tests.web.asking import Browser, asked

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
        self._browser = Browser(self._pages)
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._loop = asyncio.new_event_loop()
        self.description = json.loads(self.send("GET", "/api/v1/openapi.json", b"", {})[2])
        self._validators: dict[str, Any] = {}

    def send(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, str]:
        said = [("Host", "127.0.0.1"), ("Authorization", f"Bearer {self._secret}"), *headers.items()]
        said.append(("Content-Length", str(len(body))))
        got = self._loop.run_until_complete(asked(self._pages, self._browser.scope(method, target, said), [body]))
        return got.status, got.header("content-type"), got.text

    def run(self, requests: int) -> None:
        """Send about so many requests, spread over all operations; the same ones each time."""
        schema = schemathesis.openapi.from_dict(self.description)
        operations = [each.ok() for each in schema.get_all_operations()]
        chosen = [each for each in operations if (each.method.upper(), each.path) not in LEFT_OUT]
        each_has = max(1, requests // len(chosen))
        for operation in chosen:
            self._fuzz(operation, each_has)
        self._loop.close()

    def _fuzz(self, operation: Any, examples: int) -> None:
        modes = list(schemathesis.GenerationMode)
        strategy = hypothesis.strategies.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))

        @hypothesis.seed(7)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            derandomize=False,
        )
        @hypothesis.given(case=strategy)
        def once(case: Any) -> None:
            self._case(operation, case)

        once()

    def _case(self, operation: Any, case: Any) -> None:
        path = operation.path
        for name, value in (case.path_parameters or {}).items():
            path = path.replace(f"{{{name}}}", quote(_text(value), safe=""))
        query = urlencode(_flat(case.query or {}), doseq=True, errors="replace")
        body, headers = _body(case)
        for name, value in (case.headers or {}).items():
            headers[str(name)] = str(value).encode("latin-1", "replace").decode("latin-1").replace("\n", " ")
        headers.pop("Authorization", None)
        headers.pop("authorization", None)
        target = f"{path}?{query}" if query else path
        status, kind, text = self.send(case.method.upper(), target, body, headers)
        self.statuses[status] += 1
        if wrong := self._judge(operation, status, kind, text):
            self.wrong.append(f"{case.method} {target[:300]} {body[:300]!r} -> {status}: {wrong}: {text[:300]}")

    def _judge(self, operation: Any, status: int, kind: str, text: str) -> str | None:
        if status >= 500 or "Traceback" in text:
            return "it failed"
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
