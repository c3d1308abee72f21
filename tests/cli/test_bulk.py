"""``fencepost bulk`` and ``show --follow``: how far bulk work is, doing it again, and having it begin anew."""

import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fencepost.app.operations import Operations
from fencepost.bulk.checkpoint import Counts
from fencepost.bulk.instance import instance_name
from fencepost.bulk.watching import note_of
from fencepost.cli import run_progress
from fencepost.core.rights import Scope
from fencepost.core.runs import Requested
from fencepost.engine.requesting import KnownJob, Request, requested
from fencepost.ledger import history, requests
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.parts import part_key
from fencepost.threaded import ThreadedRuntime
from tests.cli.bulk_shop import BulkShop, MakeShop, empty_files, make_shop, refusal, used_files, used_shop

__all__ = ["empty_files", "make_shop", "used_files", "used_shop"]

REASON = ("--reason", "the rates were wrong", "--by", "ann")
OTHER_ORDERS = "SELECT id, amount, 1 AS more FROM orders WHERE id > :after ORDER BY id LIMIT :limit"


# -- bulk show -------------------------------------------------------------------------------------------------------


def test_every_partition_is_shown_with_its_place_its_counts_and_its_run(make_shop: MakeShop) -> None:
    shop = make_shop(partitions=3)
    shop.open(range(1, 91))
    shop.poison = {40}
    run = shop.run()
    shown = shop.call("bulk", "show", str(run.id), "--json").json
    assert (shown["run"], shown["job"], shown["instance"]) == (run.id, "settle", f"run-{run.id}")
    [step] = shown["steps"]
    assert (step["name"], step["state"], step["done_by"], step["other_code"]) == ("main", "done", run.id, False)
    assert (step["counts"]["read"], step["counts"]["written"], step["counts"]["skipped"]) == (90, 89, 1)
    parts = step["partitions"]
    assert [each["number"] for each in parts] == [0, 1, 2]
    assert all(each["done"] and each["run_state"] == "succeeded" for each in parts)
    assert sum(each["counts"]["read"] for each in parts) == 90
    assert parts[-1]["position"] == [90]
    assert [each["slice"].get("after") for each in parts] == [None, *(each["position"] for each in parts[:-1])]
    others = {each["run"] for each in parts} - {run.id}
    for part in others:
        assert shop.call("bulk", "show", str(part), "--json").json["run"] == run.id
    table = shop.call("bulk", "show", str(run.id)).stdout
    assert f"step main: done by run {run.id}; 90 read, 89 written, 0 filtered, 1 skipped" in table


def test_what_failed_is_shown_where_it_stands(make_shop: MakeShop) -> None:
    shop = make_shop(skip_limit=0)
    shop.open(range(1, 31))
    shop.poison = {25}
    run = shop.run()
    assert run.state == "dead"
    [step] = shop.call("bulk", "show", str(run.id), "--json").json["steps"]
    [part] = step["partitions"]
    assert (step["state"], part["done"], part["position"], part["run"]) == ("begun", False, [24], run.id)
    assert part["run_state"] == "dead"
    assert "0 of 1 partition done" in shop.call("bulk", "show", str(run.id)).stdout


def test_a_run_that_has_not_begun_has_nothing_to_show(make_shop: MakeShop) -> None:
    shop = make_shop()
    run = shop.settle.enqueue().run_id
    assert "step main: not begun" in shop.call("bulk", "show", str(run)).stdout


def test_runs_of_other_jobs_are_refused(make_shop: MakeShop) -> None:
    shop = make_shop()
    replay = shop.app.enqueue("settle/replay", params={"letters": [1]}).run_id
    assert "which is no bulk job here" in refusal(shop.call("bulk", "show", str(replay)))
    assert "there is no run 99" in refusal(shop.call("bulk", "show", "99"), 1)


# -- bulk again ------------------------------------------------------------------------------------------------------


def test_what_is_complete_is_done_again_only_on_purpose(used_shop: BulkShop) -> None:
    shop = used_shop
    shop.poison = set()
    retried = shop.call("retry", "1", "--json").json["run"]
    [skipped] = shop.drive(retried)
    assert skipped.state == "skipped"
    assert "completed by run 1; to repeat it anyway: fencepost bulk again 1" in (skipped.why or "")
    shop.execute("DELETE FROM settled")
    new = shop.call("bulk", "again", "1", *REASON, "--json").json
    assert new == {"run_id": new["run"], "again_of": 1, "run": new["run"], "again": 1}
    [entry] = shop.call("journal", "--run", str(new["run"]), "--json").json
    assert (entry["by"], entry["reason"], entry["detail"]) == ("ann", "the rates were wrong", {"retry_of": 1})
    [done] = shop.drive(new["run"])
    assert done.state == "succeeded", done.error
    assert shop.settled() == list(range(1, 31))
    # What was complete stays so: another repetition of either is refused as before.
    for run in (1, new["run"]):
        [again] = shop.drive(shop.call("retry", str(run), "--json").json["run"])
        assert again.state == "skipped"


def test_doing_again_is_refused_without_a_reason_and_while_it_is_under_way(used_shop: BulkShop) -> None:
    shop = used_shop
    assert "say why, with --reason" in refusal(shop.call("bulk", "again", "1"))
    live = shop.call("retry", "1", "--json").json["run"]
    said = refusal(shop.call("bulk", "again", "1", *REASON))
    assert f"run {live} of what run 1 stands for has not ended" in said
    shop.call("cancel", str(live))
    new = shop.call("bulk", "again", "1", *REASON, "--json").json["run"]
    said = refusal(shop.call("bulk", "again", "1", *REASON))
    assert f"run {new} of what run 1 stands for has not ended" in said


def test_what_is_not_complete_is_not_done_again(make_shop: MakeShop) -> None:
    shop = make_shop(skip_limit=0)
    shop.open(range(1, 31))
    shop.poison = {25}
    run = shop.run()
    said = refusal(shop.call("bulk", "again", str(run.id), *REASON))
    assert f"is not complete, so there is nothing to do again: go on with it by fencepost retry {run.id}" in said


def test_a_window_that_is_done_again_keeps_checkpoints_of_its_own_through_its_repetitions(make_shop: MakeShop) -> None:
    shop = make_shop()
    book = shop.app.ledger
    asked = requested(KnownJob.of(shop.settle.job), {}, Request(window_us=(0, 86_400_000_000)))
    [(first, _)] = requests.enqueue(book, [asked])
    requests.cancel(book, first)

    def name(run_id: int) -> str:
        return instance_name(book, history.run(book, run_id))

    def repeated(run_id: int, **words: Any) -> int:
        new: int = requests.retry(book, run_id, **words)
        requests.cancel(book, new)
        return new

    plain = repeated(first)
    assert name(plain) == name(first)
    anew = repeated(plain, origin_key=f"again:{plain}:x")
    assert name(anew) == f"{name(first)}-again-{anew}"
    assert name(repeated(repeated(anew))) == name(anew)
    assert name(repeated(first)) == name(first)


# -- bulk forget -----------------------------------------------------------------------------------------------------


def test_a_job_whose_query_has_changed_begins_anew_once_it_is_forgotten(make_shop: MakeShop) -> None:
    shop = make_shop(skip_limit=0)
    shop.open(range(1, 31))
    shop.poison = {25}
    run = shop.run()
    shop.poison = set()
    shop.deploy(OTHER_ORDERS, skip_limit=0)
    [refused] = shop.drive(shop.app.operations.retry(run.id, by="ann"))
    assert refused.state == "dead"
    assert "fencepost bulk forget" in (refused.error or "")
    assert "the code has changed since" in shop.call("bulk", "show", str(run.id)).stdout
    told = shop.call("bulk", "forget", str(run.id), *REASON)
    assert "forgot 2 checkpoints; the 24 items that were written stay" in told.stdout
    [entry] = shop.call("journal", "--what", "bulk forgotten", "--json").json
    assert (entry["job"], entry["run"], entry["by"], entry["reason"]) == ("settle", run.id, "ann", REASON[1])
    shop.execute("DELETE FROM settled")
    [done] = shop.drive(shop.app.operations.retry(run.id, by="ann"))
    assert done.state == "succeeded", done.error
    assert shop.settled() == list(range(1, 31))


def test_forgetting_is_refused_of_what_is_complete_and_of_what_is_live(used_shop: BulkShop) -> None:
    shop = used_shop
    assert "say why" in refusal(shop.call("bulk", "forget", "1"))
    assert "was completed by run 1, and is not forgotten" in refusal(shop.call("bulk", "forget", "1", *REASON))
    waiting = shop.settle.enqueue().run_id
    said = refusal(shop.call("bulk", "forget", str(waiting), *REASON))
    assert f"run {waiting} of what run {waiting} stands for has not ended" in said
    shop.app.operations.cancel(waiting, by="ann")
    params = {"parent": waiting, "step": "main", "number": 0, "instance": f"run-{waiting}", "values": {}, "key": "k"}
    part = shop.app.enqueue("settle/part", params=params).run_id
    assert f"run {part} of what run" in refusal(shop.call("bulk", "forget", str(waiting), *REASON))
    shop.app.operations.cancel(part, by="ann")
    assert "nothing is known" in shop.call("bulk", "forget", str(waiting), *REASON).stdout


# -- show --follow ---------------------------------------------------------------------------------------------------


class Stepping(ThreadedRuntime):
    """Does not sleep: what happens meanwhile happens."""

    steps: Iterator[Callable[[], None]] = iter(())

    def sleep(self, seconds: float) -> None:
        next(self.steps)()


@pytest.fixture
def book(empty_files: Path, tmp_path: Path) -> Iterator[Ledger]:
    (tmp_path / "ledger.db").write_bytes((empty_files / "ledger.db").read_bytes())
    book = open_ledger(f"sqlite:///{tmp_path}/ledger.db", Stepping())
    yield book
    book.close()


def change(book: Ledger, run_id: int, **values: Any) -> None:
    with closing(sqlite3.connect(book.url.path)) as connection:
        sets = ", ".join(f"{name} = :{name}" for name in values)
        connection.execute(f"UPDATE fencepost_run SET {sets} WHERE id = {run_id}", values)
        connection.commit()


def told(read: int, skipped: int = 0, *, done: int | None = None, rate: float = 500) -> dict[str, Any]:
    partitions = None if done is None else (done, 2)
    note = note_of(Counts(read, read - skipped, 0, skipped), expected=2000, partitions=partitions, rate=rate)
    return {"state": "running", "progress": read / 2000, "progress_note": note}


def acted(book: Ledger) -> int:
    """A run of a bulk job, and what becomes of it while somebody follows it."""
    [(run, _)] = requests.enqueue(book, [Requested(job="settle", type="bulk")])
    [(part, _)] = requests.enqueue(
        book, [Requested(job="settle/part", type="bulk", origin_key=part_key(run, "main", 1, 0))]
    )
    requests.enqueue(book, [Requested(job="settle/part", type="bulk", origin_key=part_key(run + 10, "main", 1, 0))])
    book.runtime.steps = iter(  # type: ignore[attr-defined]
        [
            lambda: change(book, run, **told(500, done=0)),
            lambda: change(book, part, **told(250)),
            lambda: None,
            lambda: (change(book, run, **told(1000, 3, done=1)), change(book, part, state="succeeded"))[0],
            lambda: change(book, run, state="succeeded", result='{"read":2000}'),
        ]
    )
    return run


def test_a_run_is_followed_in_plain_lines_until_it_ends(book: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    run = acted(book)
    assert run_progress.follow(Operations(book, Scope.direct()), run, as_json=False).state == "succeeded"
    waits, *lines, last = capsys.readouterr().out.splitlines()
    assert waits.startswith(f"run {run} of settle: queued")
    assert lines == [
        f"run {run} of settle: 25% 500 of about 2,000 read, 500 written, 0/2 partitions, 500/s, 3s left",
        f"  main #1 (run {run + 1}): 12% 250 of about 2,000 read, 250 written, 500/s, 4s left",
        f"run {run} of settle: 50% 1,000 of about 2,000 read, 997 written, 3 skipped, 1/2 partitions, 500/s, 2s left",
    ]
    assert last.startswith(f"run {run} of settle: 50% succeeded")


def test_programs_get_an_object_per_change(book: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    run = acted(book)
    run_progress.follow(Operations(book, Scope.direct()), run, as_json=True)
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["state"] for each in documents] == ["queued", "running", "running", "running", "succeeded"]
    assert documents[2]["parts"] == [
        {
            "run_id": run + 1,
            "origin_key": f"part:{run}:main:1:0",
            "step": "main",
            "number": 1,
            "state": "running",
            "progress_note": told(250)["progress_note"],
            "run": run + 1,
            "key": f"part:{run}:main:1:0",
        }
    ]
    assert documents[-1]["result"] == {"read": 2000}


def test_in_a_terminal_it_is_a_bar_that_moves(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(run_progress, "console", lambda: Console(file=screen, force_terminal=True, width=140))
    run = acted(book)
    run_progress.follow(Operations(book, Scope.direct()), run, as_json=False)
    drawn = screen.getvalue()
    assert "━" in drawn
    assert f"main #1 (run {run + 1})" in drawn
    assert "3 skipped, 1/2 partitions, 500/s, 2s left" in drawn


def test_words_of_a_note_do_not_speak_to_the_terminal(book: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    run = acted(book)
    book.runtime.steps = iter(  # type: ignore[attr-defined]
        [
            lambda: change(book, run, state="running", progress=0.5, progress_note="half\x1b[2J way"),
            lambda: change(book, run, state="dead", error="boom"),
        ]
    )
    row = run_progress.follow(Operations(book, Scope.direct()), run, as_json=False)
    out = capsys.readouterr().out
    assert (row.state, "\x1b" in out) == ("dead", False)
    assert "50% half\\x1b[2J way" in out


def test_following_ends_with_the_result_and_says_by_its_code_how_it_went(make_shop: MakeShop) -> None:
    shop = make_shop(skip_limit=0)
    shop.open(range(1, 31))
    run = shop.run()
    done = shop.call("show", str(run.id), "--follow")
    assert (done.returncode, '"written": 30' in done.stdout) == (0, True)
    shop.execute("DELETE FROM settled")
    shop.poison = {3}
    failed = shop.run()
    done = shop.call("show", str(failed.id), "--follow")
    assert (done.returncode, "skip_limit is 0" in done.stdout) == (3, True)
    told = shop.call("show", str(failed.id), "--follow", "--json")
    assert (told.returncode, json.loads(told.stdout)["state"]) == (3, "dead")
    assert shop.call("show", "99", "--follow").returncode == 1
