"""The commands that look at a ledger, on one in which real runs succeeded, failed and wait."""

import json
from pathlib import Path

import pytest

from fencepost import App, at
from fencepost.app.composing import publish
from fencepost.cli.run_rows import COLUMNS, run_cells
from fencepost.core.tick import spelled_us
from fencepost.ledger import schedules
from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime
from testbed.wait import until
from tests.cli.inside import Done, call, shop

RUN_FIELDS = [
    "id",
    "job",
    "type",
    "state",
    "waits_for",
    "why",
    "schedule",
    "origin_key",
    "first_due_at",
    "due_at",
    "ticks",
    "window",
    "params",
    "request_hash",
    "requested_by",
    "reason",
    "priority",
    "queue",
    "exclusive_key",
    "attempts",
    "failures",
    "crashes",
    "node",
    "node_name",
    "token",
    "created_at",
    "available_at",
    "started_at",
    "ended_at",
    "cancel_requested_at",
    "cancel_by",
    "error_code",
    "error",
    "result",
    "progress",
    "progress_note",
    "sla_at",
    "sla_missed",
    "retry_of",
    "generation",
]


NASTY = "no\nmore \x1b[31mred\x1b[0m\x07 \u202edesrever é"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger on which a node has run a few jobs; one run waits for a far future."""
    url = f"sqlite:///{tmp_path_factory.mktemp('looking')}/ledger.db"
    app = shop(url)
    with app.running(grace="10s"):
        added = [app.enqueue("add", params={"a": n}, requested_by="ann", reason="sums").run_id for n in range(3)]
        failed = app.enqueue("boom", params={"word": NASTY}).run_id
        app.enqueue("add", params={"a": 9}, delay="1d", key="later")
        wanted = [*added, failed]
        until(
            lambda: all(app.operations.run(each).state in ("succeeded", "dead") for each in wanted),
            30,
            what="they have ended",
        )
        until(lambda: app.operations.runs(job="beat", states=("succeeded",)), 30, what="a due time has run")
    app.close()
    return url


@pytest.fixture
def look(ledger: str):
    def look(*words: str) -> Done:
        return call(*words, ledger=ledger)

    return look


def test_runs_as_json_have_every_field_whatever_their_state(look) -> None:
    found = look("runs", "--json", "--limit", "1000").json
    assert {run["state"] for run in found} >= {"succeeded", "dead", "waiting"}
    for run in found:
        assert list(run) == RUN_FIELDS
    assert [run["id"] for run in found] == sorted((run["id"] for run in found), reverse=True)


def test_a_script_can_match_due_times_with_their_ends(look) -> None:
    [beat] = look("runs", "--json", "--job", "beat", "--state", "succeeded", "--limit", "1").json
    assert beat["origin_key"].startswith("tick:")
    assert beat["origin_key"].endswith(":beat")
    assert beat["schedule"] == "beat"
    assert beat["due_at"] == beat["first_due_at"] == beat["window"]["end"]
    assert beat["due_at"].endswith("Z")
    assert (beat["ticks"], beat["attempts"]) == (1, 1)
    assert beat["token"] > 0
    assert beat["node_name"]


def test_runs_can_be_chosen(look) -> None:
    assert [run["job"] for run in look("runs", "--json", "--failed").json] == ["boom"]
    assert len(look("runs", "--json", "--job", "add", "--state", "succeeded").json) == 3
    assert len(look("runs", "--json", "--job", "add", "--state", "succeeded,waiting").json) == 4
    assert look("runs", "--json", "--job", "boom", "--since", "2099-01-01T00:00Z").json == []
    assert len(look("runs", "--json", "--job", "boom", "--since", "1h").json) == 1
    assert len(look("runs", "--json", "--job", "boom", "--since", "2020-01-01", "--tz", "Asia/Seoul").json) == 1
    assert "give --tz" in look("runs", "--since", "2020-01-01").stderr
    assert look("journal", "--json", "--since", "2099-01-01", "--tz", "Asia/Seoul").json == []
    assert look("runs", "--held").stdout == "there are no such runs\n"


def test_pages_neither_overlap_nor_skip(look) -> None:
    everything = [run["id"] for run in look("runs", "--json", "--limit", "1000").json]
    pages, before = [], []
    while page := look("runs", "--json", "--limit", "2", *before).json:
        pages += [run["id"] for run in page]
        before = ["--before", str(page[-1]["id"])]
    assert pages == everything


def test_show_tells_all_of_a_failure(look) -> None:
    [boom] = look("runs", "--json", "--failed").json
    assert "RuntimeError: no more" in look("runs", "--failed").stdout
    shown = look("show", str(boom["id"]), "--json").json
    assert list(shown)[: len(RUN_FIELDS)] == RUN_FIELDS
    assert (shown["error_code"], shown["error"]) == ("RuntimeError", NASTY)
    [attempt] = shown["ended_attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["token"]) == (1, "failed", boom["token"])
    assert "raise RuntimeError(word)" in attempt["trace"]
    text = look("show", str(boom["id"])).stdout
    assert "raise RuntimeError(word)" in text
    assert str(boom["token"]) in text


def test_nothing_that_a_job_wrote_speaks_to_the_terminal(look) -> None:
    [boom] = look("runs", "--json", "--failed").json
    for words in (("show", str(boom["id"])), ("runs", "--failed")):
        shown = look(*words).stdout
        assert "\\x1b[31mred" in shown
        assert all(each.isprintable() or each == "\n" for each in shown)
    assert "é" in look("show", str(boom["id"])).stdout
    assert "no more" in look("runs", "--failed").stdout


def test_what_is_no_terminal_gets_no_blanks_to_fill_up_lines(look) -> None:
    for words in (("runs",), ("jobs",), ("jobs", "settle"), ("nodes", "--all")):
        assert all(line == line.rstrip() for line in look(*words).stdout.splitlines())


def test_show_says_what_a_run_waits_for(look) -> None:
    [later] = look("runs", "--json", "--state", "waiting").json
    assert later["origin_key"] == "request:later"
    assert "its time is" in look("show", str(later["id"]), "--json").json["waits"]
    assert "its time is" in look("show", str(later["id"])).stdout


def test_results_and_parameters_are_json_in_json(look) -> None:
    [run] = [run for run in look("runs", "--json", "--job", "add").json if run["params"] == {"a": 1}]
    assert (run["result"], run["requested_by"], run["reason"]) == (3, "ann", "sums")


def test_jobs_are_shown_with_policy_and_signature(look) -> None:
    assert [job["name"] for job in look("jobs", "--json").json] == sorted(
        job["name"] for job in look("jobs", "--json").json
    )
    settle = look("jobs", "settle", "--json").json
    assert settle["strategy"].startswith("one at a time; a run that may have lost its lease is stopped")
    assert "strategy" in look("jobs", "settle").stdout
    assert (settle["type"], settle["doc"], settle["nodes"]) == ("scheduled", "Settle the payments of a day.", 0)
    assert settle["policy"]["timeout"] == 600
    assert "Settle the payments" in look("jobs").stdout


def test_a_job_is_shown_in_words(look) -> None:
    settle = look("jobs", "settle").stdout
    for line in ("timeout          10m", "sla              1h", "parameters       none"):
        assert line in settle
    assert "None" not in settle
    add = look("jobs", "add").stdout
    assert "a: a whole number\n" in add
    assert "b: a whole number (optional)\n" in add


def test_nodes_are_shown_when_they_have_left_only_if_asked(look) -> None:
    assert look("nodes", "--json").json == []
    [node] = look("nodes", "--all", "--json").json
    assert (node["state"], node["dead_at"], node["queues"]) == ("left", None, ["default"])
    assert node["left_at"] > node["started_at"]
    assert "left 2" in look("nodes", "--all").stdout


def test_without_a_leader_every_node_plans(look) -> None:
    assert look("leader", "--json").json is None
    assert "every node plans" in look("leader").stdout


def test_a_leader_is_named_where_there_is_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    app = shop(url, leader=True)
    with app.running(grace="5s"):
        led = until(lambda: call("leader", "--json", ledger=url).json, 20, what="somebody leads")
        assert led["token"] > 0
        assert led["holder"] in call("leader", ledger=url).stdout
    app.close()
    assert call("leader", "--json", ledger=url).json is None
    assert "no node leads now" in call("leader", ledger=url).stdout


def test_schedules_are_listed_and_shown(look) -> None:
    assert [each["id"] for each in look("schedules", "list", "--json").json] == ["beat", "settle"]
    settle = look("schedules", "show", "settle", "--json").json
    assert settle["when"] == "cron 0 3 * * * in Europe/Berlin"
    assert settle["spec"] == {"cron": "0 3 * * *", "tz": "Europe/Berlin"}
    assert settle["next_due_at"].endswith(("T01:00:00Z", "T02:00:00Z"))
    assert "cron 0 3 * * * in Europe/Berlin" in look("schedules", "list", "--job", "settle").stdout


def test_an_instant_that_had_passed_when_its_schedule_was_made_is_told_of(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    app = shop(url)
    publish(app)
    app.schedules.put("once", "add", at("2026-01-01T00:00Z"), params={"a": 1})
    app.close()
    shown = call("schedules", "show", "once", ledger=url).stdout
    assert "never again: all its times have passed; see: fencepost runs --job add" in shown
    said = call("why", "once", "--at", "2026-01-01T00:00Z", ledger=url).stdout
    assert "was skipped: the time had passed when the schedule was made" in said


def test_why_answers_for_a_due_time_that_ran(look) -> None:
    [beat] = look("runs", "--json", "--job", "beat", "--state", "succeeded", "--limit", "1").json
    [answer] = look("why", "beat", "--at", beat["due_at"], "--json").json
    assert (answer["became"], answer["run"]["id"]) == ("ran", beat["id"])
    text = look("why", "beat", "--at", beat["due_at"]).stdout
    assert f"run {beat['id']} succeeded on node {beat['node_name']}" in text
    assert str(beat["token"]) in text


def test_why_without_a_time_answers_for_the_latest_due_time(ledger: str, look) -> None:
    [answer] = look("why", "settle", "--json").json
    assert (answer["became"], answer["at"] > look("runs", "--json").json[-1]["created_at"]) == ("to come", True)
    book = open_ledger(ledger, ThreadedRuntime())
    schedule = schedules.schedule(book, "beat")
    latest = book.now_us() // 1_000_000 * 1_000_000
    book.close()
    [answer] = look("why", "beat", "--json").json
    assert answer["at"] >= spelled_us(latest)
    assert answer["became"] in ("to come", "ran", "planned", "skipped", "misfired", "no node"), (answer, schedule)


def test_why_without_a_time_ends_with_the_pause_and_the_command_that_ends_it(look) -> None:
    look("pause", "--all", "--reason", "lunch", "--by", "root")
    try:
        lines = look("why", "settle").stdout.splitlines()
    finally:
        look("resume", "--all", "--by", "root")
    assert "no living node has the job now: fencepost run APP starts one" in lines[0]
    assert lines[-1].startswith("Everything has been paused since ")
    assert lines[-1].endswith(" by root: lunch. fencepost resume --all")


def test_a_variable_that_is_misspelt_is_named(ledger: str) -> None:
    others = {"FENCEPOST_SERVICE_HOST": "10.0.0.1", "FENCEPOST_PORT_5432_TCP_ADDR": "10.0.0.1", "FENCEPOST_TOKEN": "1"}
    done = call("jobs", ledger=ledger, env={"FENCEPOST_UL": "sqlite:///other.db", **others})
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert "FENCEPOST_UL is not known and has no effect; did you mean 'FENCEPOST_URL'?" in line


def test_why_answers_for_what_was_not_due_or_is_to_come(look) -> None:
    [never] = look("why", "settle", "--at", "2099-01-01T12:00Z", "--json").json
    assert (never["became"], never["nearest"]) == ("not due", ["2099-01-01T02:00:00Z", "2099-01-02T02:00:00Z"])
    [to_come] = look("why", "settle", "--at", "2099-01-01T03:00", "--tz", "Europe/Berlin", "--json").json
    assert to_come["became"] == "to come"


def test_journal_names_the_queue_and_the_end_of_a_pause(look) -> None:
    look("pause", "--queue", "default", "--for", "2h", "--reason", "the relay is down", "--by", "ann")
    look("resume", "--queue", "default", "--by", "ann")
    shown = look("journal", "--what", "queue paused").stdout
    assert "queue default, until 20" in shown
    assert "Z; the relay" in shown


def test_journal_says_that_schedules_were_made(look) -> None:
    entries = look("journal", "--json").json
    assert {(each["what"], each["schedule"]) for each in entries} >= {("schedule made", "settle")}
    assert all(each["at"].endswith("Z") for each in entries)
    assert len(look("journal", "--json", "--limit", "1").json) == 1
    assert look("journal", "--job", "settle", "--json", "--what", "schedule paused").json == []
    assert look("journal", "--json", "--what", "refused write").json == []
    assert "did you mean 'node died'?" in look("journal", "--what", "node dead").stderr


def test_what_is_not_there_is_named_with_what_may_have_been_meant(look) -> None:
    for words, expected in (
        (("show", "999999"), "no run 999999"),
        (("jobs", "setle"), "'settle'"),
        (("runs", "--job", "setle"), "'settle'"),
        (("why", "setle", "--at", "1h"), "setle"),
        (("schedules", "show", "setle"), "setle"),
        (("schedules", "preview", "setle"), "setle"),
    ):
        done = look(*words)
        assert done.returncode == 1, words
        assert len(done.stderr.splitlines()) == 1
        assert expected in done.stderr


def test_looking_makes_no_ledger(tmp_path: Path) -> None:
    done = call("runs", "--ledger", f"sqlite:///{tmp_path}/none.db")
    assert done.returncode == 2
    assert "there is no ledger at" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_without_jobs_says_where_they_come_from(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    assert call("migrate", "--ledger", url).returncode == 0
    for words in (["jobs"], ["schedules", "list"], ["nodes"]):
        assert "fencepost run" in call(*words, "--ledger", url).stdout or "node" in call(*words, "--ledger", url).stdout


def test_the_ledger_may_stand_in_the_settings_file(ledger: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FENCEPOST_URL", raising=False)
    (tmp_path / "fencepost.toml").write_text(f'url = "{ledger}"')
    assert call("jobs", "settle", "--json").json["name"] == "settle"


def test_published_jobs_are_known_before_a_node_runs(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path}/ledger.db")
    publish(app)
    app.close()
    names = [job["name"] for job in call("jobs", "--json", ledger=f"sqlite:///{tmp_path}/ledger.db").json]
    assert "settle" in names
    assert json.dumps(names)


def test_a_job_that_got_another_name_is_shown_as_that(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/renamed.db"
    for name, former in (("nightly", ()), ("settle_all", ("nightly",))):
        app = App(url)
        app.job(name=name, formerly=former)(lambda: None)
        publish(app)
        app.close()
    shown = {row["name"]: row["renamed_to"] for row in call("jobs", "--json", ledger=url).json}
    assert shown == {"nightly": "settle_all", "settle_all": None}
    assert "renamed to settle_all" in call("jobs", ledger=url).stdout
    assert "renamed to" in call("jobs", "nightly", ledger=url).stdout


def test_jobs_are_listed_as_schedules_are(look) -> None:
    assert look("jobs", "list").stdout == look("jobs").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["why", "setle"],
        ["schedules", "show", "setle"],
        ["schedules", "pause", "setle", "--by", "ann"],
        ["schedules", "resume", "setle", "--by", "ann"],
        ["schedules", "preview", "setle"],
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_one(look, words: list[str]) -> None:
    done = look(*words)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("; did you mean 'settle'?"), done.stderr


def test_a_back_filled_run_is_not_late(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/backfill.db"
    app = shop(url)
    with app.running(grace="10s"):
        app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-02T12:00Z", by="ann")
        until(lambda: app.operations.runs(job="settle", states=("succeeded",)), 30, what="it has run")
        [run] = app.operations.runs(job="settle", states=("succeeded",), limit=1)
    app.close()
    assert run.due_at is not None
    assert run_cells(run)[COLUMNS.index("late")] == ""


def test_the_state_of_what_failed_for_good_is_named(look) -> None:
    done = look("runs", "--state", "failed")
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("; a run that failed for good is 'dead'; --failed lists these")


def test_what_keeps_a_job_from_running_is_said_once_for_all_of_its_schedules(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/twice.db"
    app = App(url)

    @app.job(at("2020-01-01T00:00Z"), at("2020-01-02T00:00Z"))
    def twice() -> None: ...

    publish(app)
    app.operations.pauses.pause(None, by="root", reason="lunch")
    app.close()
    text = call("why", "twice", ledger=url).stdout
    assert text.count("Everything has been paused since ") == 1, text
