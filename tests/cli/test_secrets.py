"""A secret of a job in a worker process: its value is in no row, in no log and in no output of the node."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import zlib
from contextlib import closing
from pathlib import Path

from fencepost import App
from testbed.wait import until
from tests.cli.command import FENCEPOST, LONG_S
from tests.cli.test_running import ROOT, ledger  # noqa: F401 - a fixture

VALUES = {"live": "sk\"quoted' é/+%41-Canary", "other": "line one of Canary\nline two of Canary"}
PARTS = ("Canary", "quoted", "line one")


def every_value(file: str) -> list[str]:
    """Return every value of every row of every table, logs unpacked."""
    with closing(sqlite3.connect(file)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for name in tables for row in db.execute(f"SELECT * FROM {name}")]
    return [_text(value) for row in rows for value in row]


def _text(value: object) -> str:
    return zlib.decompress(value).decode() if isinstance(value, bytes) else str(value)


def test_canary_is_in_no_row_and_in_no_output(ledger: str, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "other").write_text(VALUES["other"] + "\n")
    env = {
        "FENCEPOST_URL": ledger,
        "FENCEPOST_SECRETS_DIR": f"{tmp_path}/secrets",
        "FENCEPOST_SECRET_LIVE": VALUES["live"],
    }
    output, command = tmp_path / "output", [FENCEPOST, "run", "tests.cli.secret_shop:app", "--workers", "1"]
    app = App(ledger)
    asked = [("leak", "live"), ("give", "live"), ("wait_for", "live"), ("pass_on", "live"), ("give", "nobody-knows")]
    with output.open("w") as file:
        node = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, env={**os.environ, **env})
    try:
        until(lambda: "takes part" in output.read_text(), LONG_S, what="the node takes part")
        runs = [app.operations.trigger(job, {"key": name}, by="ann").run_id for job, name in asked]
        until(lambda: all(is_over(app, each) for each in runs), LONG_S, what="all runs have ended")
        node.terminate()
        node.wait(LONG_S)
        leak, give, waited, passed, unknown = (app.operations.run(each) for each in runs)
        attempts = [each for run in runs for each in app.operations.attempts(run)]
        log = "".join(each.text for each in app.operations.log(leak.id))
    finally:
        node.kill()
        node.wait()
        app.close()
    assert (leak.state, leak.attempts, leak.error, leak.progress_note) == ("dead", 2, "with ***", "at ***")
    assert "invalid literal for int() with base 10: '***'" in str(attempts[0].trace)
    assert give.result == {"key": "***", "in": ["a *** b"], "***": 1}
    assert (waited.state, waited.result) == ("succeeded", None)
    assert "the value of a secret" in str(passed.error)
    assert (unknown.state, unknown.attempts) == ("dead", 1)
    assert "there is no secret 'nobody-knows' of parameter 'key' on this node; neither" in str(unknown.error)
    assert leak.params == {"key": "live"}
    for words in (
        "printed: ***",
        "spelled: '***' ['***'] *** b'***'",
        "by a program: ***",
        "logged: ***",
        "thread: ***",
    ):
        assert words in log, words
        assert words in output.read_text(), words
    assert "by the run's own logger: ***" in log
    stored = every_value(ledger.removeprefix("sqlite:///"))
    assert any("printed: ***" in value for value in stored)
    assert [text for text in (*stored, output.read_text()) for part in PARTS if part in text] == []


def is_over(app: App, run_id: int) -> bool:
    return app.operations.run(run_id).state in ("succeeded", "dead")
