"""Logs of runs on threads and on an event loop: their log records, and what their programs write."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fencepost import App
from fencepost.errors import InvalidParameters, InvalidSetting, NoSuchRun
from fencepost.testing import until

DEADLINE_S = 30.0
shop = logging.getLogger("shop.logs")


def _text(app: App, run_id: int) -> str:
    return "".join(record.text for record in app.operations.log(run_id))


def _has(app: App, run_id: int, words: str) -> str:
    until(lambda: words in _text(app, run_id), DEADLINE_S, what=f"the log of run {run_id} has {words!r}")
    return _text(app, run_id)


@pytest.fixture
def app(tmp_path: Path) -> App:
    app = App(f"sqlite:///{tmp_path}/ledger.db", ttl="10s")

    @app.job
    def on_a_thread(run, word: str) -> None:
        print("printed, and so in no log")
        shop.warning("%s password=hunter2", word)
        run.log.warning("and by the run's own logger")
        try:
            int(word)
        except ValueError:
            shop.exception("with a trace")

    @app.job
    async def on_a_loop(run, word: str) -> None:
        shop.warning("from a coroutine: %s", word)

    app.command("program", ["sh", "-c", "echo from a program; echo its error >&2"])
    return app


def test_log_records_of_each_run_are_its_own_and_what_it_prints_is_not_captured(app: App) -> None:
    before = logging.getLogRecordFactory()
    with app.running():
        shop.warning("outside of any run")
        runs = [app.enqueue("on_a_thread", params={"word": f"word {number}"}).run_id for number in range(5)]
        later = app.enqueue("on_a_loop", params={"word": "awaited"}).run_id
        program = app.enqueue("program").run_id
        for number, run_id in enumerate(runs):
            text = _has(app, run_id, "ValueError: invalid literal")
            assert text.count(" warning: shop.logs: word ") == 1
            assert f"warning: shop.logs: word {number} password=***\n" in text
            assert "fencepost.jobs.on_a_thread: and by the run's own logger" in text
            assert "printed" not in text
        assert _has(app, later, "awaited").endswith("warning: shop.logs: from a coroutine: awaited\n")
        assert sorted(_has(app, program, "from a program").splitlines()) == ["from a program", "its error"]
    assert logging.getLogRecordFactory() == before
    app.close()


def test_logs_are_there_when_a_node_has_left(app: App) -> None:
    with app.running():
        run_id = app.enqueue("on_a_loop", params={"word": "last"}).run_id
        until(lambda: app.operations.run(run_id).state == "succeeded", DEADLINE_S, what="it has succeeded")
    assert "last" in _text(app, run_id)
    app.close()


def test_logs_can_be_switched_off_and_are_read_by_position(app: App, tmp_path: Path) -> None:
    off = App(f"sqlite:///{tmp_path}/ledger.db", logs="off")
    assert (off.run_logs, app.run_logs is app.run_logs) == (None, True)
    with pytest.raises(InvalidSetting, match="App\\(logs=…\\): 'loud' is neither 'on' nor 'off'"):
        App(logs="loud")
    with app.running():
        run_id = app.enqueue("on_a_loop", params={"word": "once"}).run_id
        _has(app, run_id, "once")
    [record] = app.operations.log(run_id)
    assert app.operations.log(run_id, after=record.position) == []
    assert app.operations.log(run_id, attempt=2) == []
    assert app.operations.log(run_id, limit=0) == []
    for wrong in ("x", "1.2", "1.2.x", 5):
        with pytest.raises(InvalidParameters, match="is not a position"):
            app.operations.log(run_id, after=wrong)  # type: ignore[arg-type]
    with pytest.raises(NoSuchRun):
        app.operations.log(0)
    app.close()
    off.close()
