"""What `@app.bulk` refuses before anything runs, and what it makes of a class or a function."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fencepost import App
from fencepost.bulk import keyset
from fencepost.bulk.definition import OPTIONS
from fencepost.errors import InvalidBulk, InvalidPolicy
from tests.bulk.orders import QUERY, Shop, kind, place, played, settling, shop

__all__ = ["kind", "place", "shop"]

READ = keyset(QUERY, key="id")


@pytest.fixture
def app() -> App:
    return App("sqlite:////nowhere.db")


def write(tx: Any, items: Any) -> None:
    """Write nothing."""


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ({"skip_limit": -1}, "skip_limit -1 must be a whole number from 0"),
            ({"skip_limit": True}, "skip_limit True must be a whole number"),
            ({"retry_limit": -1}, "retry_limit -1 must be"),
            ({"retry_limit": 1.5}, "retry_limit 1.5 must be"),
            ({"crash_limit": 0}, "crash_limit 0 must be a whole number from 1"),
            ({"read_ahead": 65}, "read_ahead 65 must be a whole number from 0 to 64"),
            ({"concurrency": 0}, "concurrency 0 must be"),
            ({"partitions": 0}, "partitions 0 must be a whole number from 1"),
            ({"partitions": 10_001}, "must be a whole number from 1 to 10000"),
            ({"partitions": []}, "must be a number, or a list with values"),
            ({"partitions": ["eu"]}, "must be a number, or a list with values"),
            ({"partitions": [{"region": "eu"}]}, "have values for region, which .* does not use"),
            ({"over": "processes"}, "over 'processes' must be 'nodes'"),
            ({"chunk_bytes": "many"}, "chunk_bytes 'many' is not a valid size"),
            ({"chunk_bytes": 0}, "must be more than zero"),
            ({"chunk_time": 0}, "chunk_time 0 must be more than zero"),
            ({"memory": "1MB"}, "less than a worker needs before its first item"),
            ({"skiplimit": 3}, "has no option 'skiplimit'; did you mean 'skip_limit'?"),
            ({"timeuot": "1h"}, "has no option 'timeuot'; did you mean 'timeout'?"),
        ],
        ids=str,
    )
    def test_options_that_cannot_be(self, app: App, words: dict[str, Any], told: str) -> None:
        with pytest.raises(InvalidBulk, match=told):
            app.bulk(read=READ, **words)(write)
        assert "write" not in app.jobs

    @pytest.mark.parametrize("chunk", [0, -5, "many", 10**7])
    def test_a_chunk_that_cannot_be(self, app: App, chunk: Any) -> None:
        with pytest.raises((InvalidBulk, InvalidPolicy), match="chunk"):
            app.bulk(read=READ, chunk=chunk)(write)

    def test_a_job_without_a_reader(self, app: App) -> None:
        with pytest.raises(InvalidBulk, match="it has nothing to read"):
            app.bulk()(write)

    def test_a_reader_that_is_none(self, app: App) -> None:
        with pytest.raises(InvalidBulk, match="is not a reader"):
            app.bulk(read=QUERY)(write)  # type: ignore[arg-type]

    def test_a_class_that_writes_nothing(self, app: App) -> None:
        with pytest.raises(InvalidBulk, match="it has no write"):
            app.bulk()(type("Settle", (), {"read": READ}))

    def test_an_async_write(self, app: App) -> None:
        async def settle(tx: Any, items: Any) -> None: ...

        with pytest.raises(InvalidBulk, match="cannot be async; process"):
            app.bulk(read=READ)(settle)

    def test_no_step_two_of_one_name_and_what_is_no_list(self, app: App) -> None:
        step = settling(name="one")
        for steps, told in (
            ((), "has no step"),
            ((step, step), "two steps with the same name: one, one"),
            (step, "steps is a list of classes"),
        ):
            with pytest.raises(InvalidBulk, match=told):
                app.bulk()(type("Nightly", (), {"steps": steps}))

    def test_a_step_that_both_works_and_reads(self, app: App) -> None:
        both = settling(name="one", work=lambda _, run: None)
        with pytest.raises(InvalidBulk, match="with work\\(\\) must have neither read nor write"):
            app.bulk()(type("Nightly", (), {"steps": [both]}))

    @pytest.mark.parametrize("name", ["run", "window_start", "window_end"])
    def test_a_class_that_takes_what_comes_by_itself(self, app: App, name: str) -> None:
        made: dict[str, Any] = {}
        exec(f"def __init__(self, {name}): pass", made)
        with pytest.raises(InvalidBulk, match=f"cannot take '{name}'"):
            app.bulk()(settling(__init__=made["__init__"]))

    def test_a_name_too_long_for_its_parts(self, app: App) -> None:
        with pytest.raises(InvalidBulk, match="at most 113 characters"):
            app.bulk(read=READ, name="n" * 114)(write)


class TestOptions:
    def test_each_is_a_parameter_of_its_own(self) -> None:
        taken = inspect.signature(App.bulk).parameters
        assert {"chunk", *OPTIONS} <= {name for name, each in taken.items() if each.kind is each.KEYWORD_ONLY}

    def test_what_is_none_is_left_to_the_class(self, app: App) -> None:
        job = app.bulk(chunk=None, skip_limit=None, partitions=None)(settling(chunk=7, skip_limit=3, partitions=2))
        options = job.declared.make().steps[0].options
        assert (options.sizing.chunk, options.skip_limit, options.partitions) == (7, 3, 2)

    @pytest.mark.parametrize(
        ("words", "source", "target"),
        [
            ({}, "sqlite:///class.db", "sqlite:///class.db"),
            ({"source": None}, None, "sqlite:///class.db"),
            ({"target": None}, None, None),
            ({"target": "sqlite:///other.db"}, "sqlite:///other.db", "sqlite:///other.db"),
        ],
    )
    def test_no_database_is_the_ledgers_own(
        self, app: App, words: dict[str, Any], source: str | None, target: str | None
    ) -> None:
        job = app.bulk(**words)(settling(target="sqlite:///class.db"))
        options = job.declared.make().steps[0].options
        assert (options.source, options.target) == (source, target)


class TestForms:
    def test_a_function_that_writes_is_a_job(self, shop: Shop) -> None:
        shop.fill(range(1, 26))
        plain = settling().write

        def settle(tx: Any, items: Any) -> None:
            """Settle orders."""
            plain(None, tx, items)

        handle = shop.bulk(settle, read=READ, process=lambda order: order if order.id % 2 else None)
        row = played(shop, handle)
        assert row.state == "succeeded"
        assert shop.settled() == list(range(1, 26, 2))
        assert handle.job.doc == "Settle orders."
        assert handle.job.signature.names == ()

    def test_a_class_may_make_its_reader_when_it_is_made(self, shop: Shop) -> None:
        shop.fill(range(1, 11))

        class Settle(settling()):  # type: ignore[misc]
            def __init__(self, least: int) -> None:
                self.read = keyset(QUERY.replace("WHERE", f"WHERE id >= {least} AND"), key="id")

        row = played(shop, shop.bulk(Settle), least=6)
        assert row.state == "succeeded"
        assert shop.settled() == [6, 7, 8, 9, 10]

    def test_what_cannot_work_with_these_parameters_is_given_up_at_once(self, shop: Shop) -> None:
        class Settle:
            write = settling().write

            def __init__(self, is_well: bool) -> None:
                self.read = READ if is_well else None

        row = played(shop, shop.bulk(Settle, retries=5), is_well=False)
        assert (row.state, row.attempts) == ("dead", 1)
        assert "it has nothing to read" in (row.error or "")
