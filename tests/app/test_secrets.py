"""Secrets of jobs on threads, on an event loop and in bulk: looked up in time, in no row and in no error."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text

from fencepost import App, Run, Secret, every
from fencepost.bulk import keyset
from fencepost.core import masked_values
from fencepost.core.masked_values import MASKED, MaskedValues
from fencepost.core.parameters import Signature
from fencepost.core.secrets import scrub
from fencepost.engine.known_secrets import known_secret
from fencepost.engine.resolving import resolved
from fencepost.errors import InvalidParameters, InvalidPolicy, NoSuchSecret, SecretUnavailable
from fencepost.ledger.ledger import Ledger
from fencepost.testing import until
from fencepost.web.parameter_forms import parameter_fields

VALUE = "canary-of-the-mine"


@pytest.fixture
def kind() -> str:
    return "sqlite"  # no statement depends on what this is about


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    """Leave nothing behind that would be masked in other tests of this process."""
    before = vars(MASKED).copy()
    vars(MASKED).update(vars(MaskedValues()))
    yield
    vars(MASKED).update(before)


def every_value(ledger: Ledger) -> list[str]:
    tables = ledger.tables.metadata.sorted_tables
    rows = ledger.read(lambda cursor: [row for table in tables for row in ledger.rows(cursor, select(table))])
    return [
        zlib.decompress(bytes(value)).decode() if isinstance(value, bytes | bytearray | memoryview) else str(value)
        for row in rows
        for value in row
    ]


def test_on_threads_and_loops_and_in_bulk_no_row_has_the_value(url: str) -> None:
    looked_up: list[str] = []

    def source(name: str) -> str:
        looked_up.append(name)
        return {"live": VALUE}[name]

    app = App(url, ttl="10s", secrets=source)
    seen: list[str] = []

    @app.job
    def on_a_thread(run: Run, key: Secret[str]) -> str:
        logging.getLogger("shop").warning("logged %s", key.reveal())
        run.progress(0.5, key.reveal())
        seen.append(key.reveal())
        raise ValueError(key.reveal())

    @app.job
    async def on_a_loop(key: Secret[str] = Secret("live")) -> str:  # noqa: B008
        return f"returned {key.reveal()}"

    @app.bulk(chunk=2, partitions=2, name="charges")
    class Charges:
        read = keyset("SELECT id FROM secret_items WHERE id > :after ORDER BY id LIMIT :limit", key="id")

        def __init__(self, key: Secret[str]) -> None:
            self._key = key

        def write(self, tx: Any, items: Any) -> None:
            seen.append(self._key.reveal())

    engine = create_engine(app.ledger.url.sqlalchemy())
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS secret_items"))
        connection.execute(text("CREATE TABLE secret_items (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO secret_items VALUES (1), (2), (3), (4), (5)"))
    try:
        with app.running():
            runs = [
                app.enqueue("on_a_thread", params={"key": Secret("live")}).run_id,
                app.enqueue("on_a_loop").run_id,
                app.enqueue("charges", params={"key": "live"}).run_id,
                app.enqueue("on_a_loop", params={"key": "dead"}).run_id,
            ]
            over = ("succeeded", "dead")
            until(lambda: all(app.operations.run(each).state in over for each in runs), 60, what="all ended")
            until(lambda: app.operations.log(runs[0]), 30, what="the log is written")
        thread, loop, bulk, unknown = (app.operations.run(each) for each in runs)
        assert (thread.state, thread.error, thread.progress_note) == ("dead", "***", "***")
        assert (loop.state, loop.result) == ("succeeded", "returned ***")
        assert (bulk.state, unknown.state, unknown.attempts) == ("succeeded", "dead", 1)
        assert set(looked_up) == {"live", "dead"}
        assert set(seen) == {VALUE}
        stored = every_value(app.ledger)
        assert any("logged ***" in each for each in stored)
        assert [each for each in stored if VALUE in each] == []
    finally:
        app.close()
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE secret_items"))
        engine.dispose()


def test_no_act_of_a_run_puts_the_value_on_record(url: str) -> None:
    """It is refused in parameters, keys and ids, and masked in reasons and names of people."""
    app = App(url, ttl="10s", secrets={"live": VALUE}.__getitem__)

    @app.job
    def plain(word: str = "") -> None: ...

    @app.job
    def passes_on(key: Secret[str]) -> list[str]:
        value, ops = key.reveal(), app.operations
        app.schedules.put("hourly", "plain", every("1h"), by=f"by {value}", reason=f"put {value}")
        app.schedules.pause("hourly", by=f"by {value}", reason=f"paused {value}")
        first = ops.trigger("plain", {"word": "first"}, by=f"by {value}", reason=f"asked {value}", delay="1h").run_id
        ops.cancel(first, by=f"by {value}", reason=f"cancelled {value}")
        ops.retry(first, by=f"by {value}", reason=f"again {value}")
        ops.pauses.pause("default", by=f"by {value}", reason=f"paused {value}")
        ops.pauses.resume("default", by=f"by {value}", reason=f"resumed {value}")
        app.enqueue("plain", requested_by=f"by {value}", reason=f"enqueued {value}", delay="1h")
        day, word, by = ("2026-01-01T00:00Z", "2026-01-01T01:00Z"), {"word": f"a {value}"}, "ann"
        acts: dict[str, Callable[[], object]] = {
            "enqueue": lambda: app.enqueue("plain", params=word),
            "enqueue key": lambda: app.enqueue("plain", key=f"key-{value}"),
            "trigger": lambda: ops.trigger("plain", word, by=by),
            "retry": lambda: ops.retry(first, by=by, params=word, again=True),
            "put": lambda: app.schedules.put("other", "plain", every("1h"), params=word),
            "put id": lambda: app.schedules.put(f"id-{value}", "plain", every("1h")),
            "backfill": lambda: ops.backfill("plain", *day, by=by, params=word),
            "backfill key": lambda: ops.backfill("plain", *day, by=by, key=f"key-{value}"),
        }
        return [name for name, act in acts.items() if not is_refused(act)]

    try:
        with app.running():
            run_id = app.enqueue("passes_on", params={"key": "live"}).run_id
            until(lambda: app.operations.run(run_id).state in ("succeeded", "dead"), 60, what="it has ended")
        run = app.operations.run(run_id)
        assert (run.state, run.result, run.error) == ("succeeded", [], None)
        assert app.operations.schedules.get("hourly").pause_reason == "paused ***"
        stored = every_value(app.ledger)
        for said in ("asked ***", "cancelled ***", "again ***", "resumed ***", "enqueued ***", "by ***"):
            assert said in stored
        assert [each for each in stored if VALUE in each] == []
    finally:
        app.close()


def is_refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except InvalidParameters as error:
        return "the value of a secret" in str(error) and scrub(str(error)) == str(error)
    return False


def takes(key: Secret[str]) -> None: ...


def looked_up(source: Any) -> Any:
    return resolved(Signature.of(takes), {"key": Secret("live")}, source)["key"]


def test_value_is_masked_before_the_job_has_it_and_each_attempt_looks_anew() -> None:
    values = iter(["first-value", "second-value"])
    assert looked_up(lambda _: next(values)).reveal() == "first-value"
    assert looked_up(lambda _: next(values)).reveal() == "second-value"
    assert MASKED.masked("first-value second-value") == "*** ***"


def test_what_goes_wrong_is_said_without_what_was_found() -> None:
    def breaks(_: str) -> str:
        raise ConnectionError(f"vault said {VALUE}")

    with pytest.raises(
        SecretUnavailable, match="'live' of parameter 'key' could not be looked up: ConnectionError"
    ) as error:
        looked_up(breaks)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
    with pytest.raises(NoSuchSecret, match="'live'"):
        looked_up({}.__getitem__)
    for value in (None, b"bytes-of-it", "abc", "", "x" * 8001):
        with pytest.raises(SecretUnavailable):
            looked_up(lambda _, value=value: value)


def test_value_is_masked_until_its_run_has_ended_however_many_others_are_looked_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_values, "_MOST", 3)
    monkeypatch.setattr(masked_values, "_AT_ONCE", 0)
    vars(MASKED).update(vars(MaskedValues()))
    app = App(url, ttl="10s", secrets={"live": VALUE}.__getitem__)

    @app.job
    def tells(key: Secret[str]) -> str:
        value = key.reveal()
        del key
        for number in range(9):
            MASKED.add(f"looked up by run {number}")
        return value

    try:
        with app.running():
            run_id = app.enqueue("tells", params={"key": "live"}).run_id
            until(lambda: app.operations.run(run_id).state == "succeeded", 60, what="it has ended")
        assert app.operations.run(run_id).result == "***"
        assert MASKED.masked("looked up by run 1") == "looked up by run 1"
    finally:
        app.close()


def takes_api_key(api_key: Secret[str]) -> None: ...


def test_no_message_of_ours_is_garbled_by_the_masking(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows `'api_key':` would be taken for its value."""
    monkeypatch.setenv("FENCEPOST_SECRETS_DIR", "/run/our-secrets")
    signature, named = Signature.of(takes_api_key), {"api_key": Secret("stripe-test")}

    def fails(source: Any) -> str:
        with pytest.raises((NoSuchSecret, SecretUnavailable)) as error:
            resolved(signature, named, source)
        return str(error.value)

    with pytest.raises(InvalidParameters) as refused:
        signature.validate({"api_key": "sk live"})
    unknown, unknown_to_us = fails(known_secret), fails({}.__getitem__)
    others = [fails(lambda _, value=value: value) for value in (None, "abc")]
    for message in (unknown, unknown_to_us, *others, fails(lambda _: 1 / 0), str(refused.value)):
        assert scrub(message) == message
    for part in ("'stripe-test'", "'api_key'", "FENCEPOST_SECRET_STRIPE_TEST", "/run/our-secrets/stripe-test"):
        assert part in unknown
    assert "application's own function" in unknown_to_us
    assert "FENCEPOST_SECRET" not in unknown_to_us


def test_usual_places_are_the_environment_and_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FENCEPOST_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_SECRET_STRIPE_LIVE_2", "from the environment")
    (tmp_path / "stripe-live.3").write_text("from a file\n")
    assert known_secret("stripe-live.2") == "from the environment"
    assert known_secret("stripe-live.3") == "from a file"
    for name in ("stripe-live.4", "PATH", "HOME"):
        with pytest.raises(LookupError):
            known_secret(name)


def test_secret_is_no_search_key() -> None:
    with pytest.raises(InvalidPolicy, match="Secret"):
        App("sqlite:///unused.db").job(search=["key"])(takes)


def test_form_asks_for_the_name() -> None:
    [field] = parameter_fields(json.loads(Signature.of(takes).to_json()), {"key": "live"})
    assert (field.value, field.input, "name of a secret" in field.words) == ("live", "text", True)
