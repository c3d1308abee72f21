"""The commands with which operators change things. No node takes part, so that what they ask for stays as asked."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from fencepost import App, every, locks
from fencepost.app.composing import publish
from fencepost.bulk import iterable
from fencepost.core.names import NODE_LEASE
from fencepost.core.runs import Requested
from fencepost.ledger import nodes, requests
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.nodes import NewNode
from fencepost.ledger.urls import lease_url
from fencepost.threaded import ThreadedRuntime
from tests.cli.command import FENCEPOST
from tests.cli.inside import call


def record(ledger: str, **changes) -> int:
    """Record a run in any state."""
    book = open_ledger(ledger, ThreadedRuntime())
    request = Requested(job="add", type="manual", params='{"a":1}', params_hash="x")._replace(**changes)
    [made] = requests.enqueue(book, [request])
    book.close()
    return made.run_id


def test_trigger_records_who_asked_and_why(act) -> None:
    asked = act("trigger", "add", "-p", "a=3", "-p", "b=4", "--reason", "because", "--by", "ann", "--json").json
    assert asked == {"run": asked["run"], "job": "add", "new": True, "paused": None}
    run = act("show", str(asked["run"]), "--json").json
    assert (run["params"], run["requested_by"], run["reason"]) == ({"a": 3, "b": 4}, "ann", "because")
    assert (run["state"], run["type"]) == ("queued", "manual")
    [entry] = act("journal", "--run", str(asked["run"]), "--json").json
    assert (entry["what"], entry["by"], entry["reason"]) == ("run triggered", "ann", "because")


def test_who_asks_is_by_default_whoever_is_logged_in(act, monkeypatch) -> None:
    monkeypatch.setenv("LOGNAME", "eve")
    run = act("trigger", "add", "-p", "a=3", "--json").json["run"]
    assert act("show", str(run), "--json").json["requested_by"] == "eve"


def test_what_is_under_way_is_not_asked_for_again_unless_one_insists(act) -> None:
    first = act("trigger", "add", "-p", "a=3", "--by", "ann", "--json").json["run"]
    refused = act("trigger", "add", "-p", "a=3", "--by", "bob")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert f"run {first} of job 'add' asks for the same and is queued (made at 2" in refused.stderr
    assert "by ann), so nothing was enqueued; wait for it, or run it anyway: --again" in refused.stderr
    told = act("trigger", "add", "-p", "a=3", "--json")
    assert told.returncode == 4
    known = json.loads(told.stdout)
    assert (known["run"], known["new"], known["state"], known["requested_by"]) == (first, False, "queued", "ann")
    assert act("trigger", "add", "-p", "a=3", "--again", "--json").json["new"]


def test_a_run_shows_the_hash_of_what_was_asked_for(act) -> None:
    runs = [act("trigger", "add", "-p", "a=3", "--again", "--json").json["run"] for _ in range(2)]
    shown = [act("show", str(run), "--json").json["request_hash"] for run in runs]
    assert shown[0] == shown[1]
    act("trigger", "add", "-p", "a=4")
    assert len({each["request_hash"] for each in act("runs", "--json").json}) == 2
    assert shown[0] in act("show", str(runs[0])).stdout


def test_a_run_that_is_being_repeated_is_not_repeated_again_unless_one_insists(act, ledger) -> None:
    old = record(ledger, state="dead")
    new = act("retry", str(old), "--json").json["run"]
    refused = act("retry", str(old), "--json")
    assert (refused.returncode, json.loads(refused.stdout)["run"]) == (4, new)
    assert f"run {new} of job 'add' repeats run {old} already" in refused.stderr
    assert act("retry", str(old), "--again").returncode == 0


def test_a_backfill_under_way_is_not_repeated_unless_one_insists(act) -> None:
    words = ["backfill", "settle", "--from", "2026-01-01", "--to", "2026-01-05", "--tz", "UTC"]
    assert act(*words).returncode == 0
    refused = act(*words)
    assert refused.returncode == 4
    assert "back-fills one of these due times already" in refused.stderr
    assert act(*words, "--again").returncode == 0


def test_the_same_key_twice_is_one_run(act) -> None:
    first = act("trigger", "add", "-p", "a=3", "--key", "k", "--json").json
    again = act("trigger", "add", "-p", "a=3", "--key", "k", "--json").json
    assert again == {**first, "new": False}
    assert "requested before" in act("trigger", "add", "-p", "a=3", "--key", "k").stdout
    other = act("trigger", "add", "-p", "a=4", "--key", "k")
    assert other.returncode == 2
    assert f"run {first['run']}" in other.stderr


def test_programs_get_all_runs_and_people_the_last_fifty(act, ledger) -> None:
    assert act("runs", "--json").json == []
    ids = [record(ledger) for _ in range(55)]
    assert [run["id"] for run in act("runs", "--json").json] == ids[::-1]
    assert len(act("runs", "--json", "--limit", "3").json) == 3
    shown = [line for line in act("runs").stdout.splitlines() if " add " in line]
    assert len(shown) == 50


def test_a_run_past_its_sla_is_shown_as_such(act, ledger) -> None:
    late, in_time, none = record(ledger, due_at_us=5, sla_us=1), record(ledger, sla_us=10**12), record(ledger)
    told = {run["id"]: run["sla_missed"] for run in act("runs", "--json").json}
    assert told == {late: True, in_time: False, none: None}
    assert act("runs").stdout.count("SLA missed") == 1
    assert "(SLA missed: now " in act("show", str(late)).stdout
    assert "SLA missed" not in act("show", str(in_time)).stdout
    assert "deadline" in act("show", str(in_time)).stdout


def test_whoever_waits_for_long_is_told_what_for_and_may_stop_waiting(ledger: str) -> None:
    words = ["trigger", "add", "-p", "a=3", "--wait", "--ledger", ledger]
    process = subprocess.Popen([FENCEPOST, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "there is no living node to run it" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "run 1 continues: fencepost show 1" in process.stderr.readline()
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.communicate()


def test_whoever_waits_is_told_of_an_attempt_that_failed_and_was_made_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stumbling.db"
    app = App(url)

    @app.job(retries=1, backoff="100ms")
    def stumble(run) -> None:
        if run.attempt == 1:
            raise RuntimeError("not yet")

    with app.running():
        waited = call("trigger", "stumble", "--wait", ledger=url)
    assert waited.returncode == 0
    assert waited.stderr.count("run 1: attempt 1 failed: RuntimeError: ") == 1
    assert all(" begins at " in line for line in waited.stderr.splitlines() if "attempt 2" in line)
    app.close()


def test_whoever_waits_is_told_once_that_nobody_takes_from_the_queue(ledger: str) -> None:
    book = open_ledger(ledger, ThreadedRuntime())
    nodes.join(book, NewNode("n", "elsewhere", "g", 1, 0, "0", 1, ("other",), ("add",)))
    words = ["trigger", "add", "-p", "a=3", "--wait", "--ledger", ledger]
    process = subprocess.Popen([FENCEPOST, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "no living node with this job takes runs from the queue 'default'" in process.stderr.readline()
    finally:
        process.kill()
        process.communicate()
        book.close()


def test_what_has_room_and_does_not_claim_is_suspected(ledger: str, act) -> None:
    run = record(ledger)
    book = open_ledger(ledger, ThreadedRuntime())
    store = locks.connect(lease_url(ledger), holder="idle")
    node = NewNode(
        id="n",
        name="idle",
        grant_id=store.lock(f"{NODE_LEASE}n", ttl="10m").acquire().grant_id,
        token=1,
        generation=0,
        version="0",
        slots=1,
        queues=("default",),
        jobs=("add",),
    )
    nodes.join(book, node)
    assert "about to be claimed" in act("show", str(run)).stdout
    book.write(lambda cursor: cursor.execute("UPDATE fencepost_run SET available_at = 5"))
    assert "idle could run it and seems to have room" in act("show", str(run)).stdout
    other = record(ledger)
    book.write(lambda cursor: cursor.execute(f"UPDATE fencepost_run SET state='running', node='n' WHERE id={other}"))
    assert "every node that could run it is busy (1 of them; places: 1)" in act("show", str(run)).stdout
    store.close()
    book.close()


def test_a_run_may_start_later(act) -> None:
    run = act("trigger", "add", "-p", "a=3", "--delay", "1h", "--json").json["run"]
    assert act("show", str(run), "--json").json["waits_for"] == "time"


PARAMETERS = {
    "one that it does not take": (["-p", "a=1", "-p", "c=1"], "'c'"),
    "one that is missing": ([], "'a' must be given"),
    "one of another kind": (["-p", "a=three"], "three"),
    "one without a value": (["-p", "3"], "has no value"),
    "one without a name": (["-p", "=3"], "has no name"),
    "one given twice": (["-p", "a=1", "-p", "a=2"], "twice"),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters_that_do_not_fit_are_refused_in_a_sentence(case: str, act) -> None:
    words, expected = PARAMETERS[case]
    done = act("trigger", "add", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert expected in done.stderr
    assert act("runs", "--json", "--job", "add").json == []


def test_cancel_ends_what_has_not_begun_and_says_when_it_is_too_late(act) -> None:
    run = str(act("trigger", "add", "-p", "a=3", "--json").json["run"])
    assert act("cancel", run, "--by", "ann", "--reason", "wrong", "--json").json == {
        "run": int(run),
        "outcome": "cancelled",
    }
    shown = act("show", run, "--json").json
    assert (shown["state"], shown["cancel_by"]) == ("cancelled", "ann")
    assert act("cancel", run, "--json").json["outcome"] == "too late"
    assert "nothing was done" in act("cancel", run).stdout


def test_retry_makes_a_new_run_of_one_that_has_ended(act, ledger) -> None:
    run = str(record(ledger))
    refused = act("retry", run)
    assert (refused.returncode, refused.stderr) == (
        2,
        f"fencepost: run {run} is queued, and only a run that has ended can be repeated\n",
    )
    act("cancel", run)
    again = act("retry", run, "--by", "ann", "--json").json
    assert again["retry_of"] == int(run)
    shown = act("show", str(again["run"]), "--json").json
    assert (shown["retry_of"], shown["params"], shown["requested_by"]) == (int(run), {"a": 1}, "ann")


def test_release_is_for_runs_that_are_held(act, ledger) -> None:
    run = str(record(ledger))
    assert "only a run that is held" in act("release", run).stderr
    book = open_ledger(ledger, ThreadedRuntime())
    book.write(
        lambda cursor: cursor.execute(
            "UPDATE fencepost_run SET state = 'waiting', waits_for = 'person', why = 'it was lost' WHERE id = ?", (run,)
        )
    )
    book.close()
    assert [each["id"] for each in act("runs", "--held", "--json").json] == [int(run)]
    assert f"fencepost release {run}" in act("show", run).stdout
    assert act("release", run, "--json").json == {"run": int(run), "released": True}
    assert act("show", run, "--json").json["state"] == "queued"


def test_reprocess_repeats_each_failure_once(act, ledger) -> None:
    failed = [record(ledger, state="dead") for _ in range(3)]
    fine = record(ledger)
    first = act("reprocess", "--failed", "--after-id", str(failed[0]), "--json").json
    assert [each["retry_of"] for each in first] == failed[1:]
    again = act("reprocess", "--failed", "--after-id", "0", "--job", "add", "--json").json
    assert [(each["retry_of"], each["new"]) for each in again] == [
        (failed[0], True),
        (failed[1], False),
        (failed[2], False),
    ]
    assert fine not in [each["retry_of"] for each in again]
    assert "had been repeated before" in act("reprocess", "--failed", "--since", "1h").stdout
    assert act("reprocess", "--failed", "--after-id", "0", "--job", "boom").stdout.startswith("there is no such run")


def test_reprocess_wants_to_be_told_what_and_from_where() -> None:
    assert "--failed" in call("reprocess", "--after-id", "0").stderr
    assert "--after-id" in call("reprocess", "--failed").stderr


def test_a_renamed_job_is_asked_for_under_its_present_name(act, ledger: str) -> None:
    for name, words in (("nightly", {}), ("close", {"formerly": "nightly"})):
        app = App(ledger)
        app.command(name, ["true"], **words)
        publish(app)
        app.close()
    done = act("trigger", "nightly")
    assert (done.returncode, done.stdout) == (0, "run 1 of close\n")
    assert "job nightly is called close now: this is requested under that name" in done.stderr
    assert act("show", "1", "--json").json["job"] == "close"


def test_after_a_roll_back_it_is_asked_for_under_its_old_name(act, ledger: str) -> None:
    for name, words in (("nightly", {}), ("close", {"formerly": "nightly"}), ("nightly", {})):
        app = App(ledger)
        app.command(name, ["true"], **words)
        publish(app)
        app.close()
    done = act("trigger", "nightly")
    assert (done.returncode, done.stdout) == (0, "run 1 of nightly\n")
    assert "is called" not in done.stderr
    assert act("jobs", "nightly", "--json").json["renamed_to"] is None


def test_backfill_asks_for_each_due_time_with_its_window(act) -> None:
    span = ("--from", "2026-03-28", "--to", "2026-03-30T12:00", "--tz", "Europe/Berlin")
    planned = act("backfill", "settle", *span, "--dry-run", "--json").json
    assert [each["due_at"] for each in planned] == [
        "2026-03-28T02:00:00Z",
        "2026-03-29T01:00:00Z",  # 03:00 is the first instant after the gap
        "2026-03-30T01:00:00Z",
    ]
    assert planned[1]["window"] == {"start": "2026-03-28T02:00:00Z", "end": "2026-03-29T01:00:00Z"}
    assert act("runs", "--json").json == []
    made = act("backfill", "settle", *span, "--key", "march", "--json").json
    assert made == {"job": "settle", "key": "march", "asked": 3, "new": 3}
    assert act("backfill", "settle", *span, "--key", "march", "--json").json["new"] == 0
    due = [run["due_at"] for run in act("runs", "--job", "settle", "--json").json]
    assert sorted(due) == [each["due_at"] for each in planned]


def test_backfill_refuses_more_than_was_meant(act) -> None:
    done = act("backfill", "beat", "--from", "2026-01-01T00:00Z", "--to", "2026-02-01T00:00Z")
    assert done.returncode == 2
    assert "2678401" in done.stderr
    backwards = act("backfill", "settle", "--from", "2026-02-01T00:00Z", "--to", "2026-01-01T00:00Z")
    assert (backwards.returncode, len(backwards.stderr.splitlines())) == (2, 1)
    assert "no such schedule" in act("backfill", "add", "--from", "2d", "--to", "1d").stderr
    assert re.search(r"allow more: --limit \d{5,}, in code limit=", done.stderr)


def test_pause_and_resume_are_on_record(act) -> None:
    paused = act("schedules", "pause", "settle", "--by", "ann", "--reason", "holiday", "--json").json
    assert (paused["paused_by"], paused["pause_reason"], paused["next_due_at"]) == ("ann", "holiday", None)
    assert "by ann: holiday" in act("schedules", "list").stdout
    [answer] = act("why", "settle", "--at", "2099-01-01T02:00Z", "--json").json
    assert answer["became"] == "paused"
    resumed = act("schedules", "resume", "settle", "--by", "bob", "--json").json
    assert resumed["paused_at"] is None
    assert resumed["next_due_at"] is not None
    acts = [(each["what"], each["by"]) for each in act("journal", "--job", "settle", "--json").json]
    assert acts[:2] == [("schedule resumed", "bob"), ("schedule paused", "ann")]


def test_pauses_ends_with_the_number_of_paused_schedules(act) -> None:
    assert act("pauses").stdout == "nothing is paused: neither everything nor a queue\n"
    act("schedules", "pause", "settle", "--reason", "holiday")
    counts = "1 schedule is paused: fencepost schedules list\n"
    assert act("pauses").stdout == f"nothing is paused: neither everything nor a queue\n{counts}"
    act("pause", "--all", "--reason", "the bank books twice")
    assert act("pauses").stdout.endswith(f"the bank books twice\n\n{counts}")
    assert len(act("pauses", "--json").json) == 1


def test_to_resume_what_is_not_paused_names_what_is(act) -> None:
    nothing = act("resume", "--queue", "defalt")
    assert "the queue 'defalt' was not paused; nothing was done, and nothing else is paused\n" in nothing.stdout
    act("pause", "--queue", "default", "--reason", "the relay is down")
    done = act("resume", "--queue", "defalt").stdout
    assert "nothing was done; did you mean 'default'?; " in done
    assert "the relay is down" in done
    assert [each["queue"] for each in act("pauses", "--json").json] == ["default"]
    assert act("resume", "--queue", "default").stdout == "the queue 'default' is resumed\n"


def test_an_unknown_job_is_refused_with_the_one_most_like_it(act) -> None:
    for words in (["trigger", "ad"], ["backfill", "setle", "--from", "2d", "--to", "1d"]):
        done = act(*words)
        assert done.returncode == 1
        assert "did you mean" in done.stderr


def test_who_requests_what_no_node_can_take_is_told_so(act, ledger: str) -> None:
    note = "it waits: there is no living node to run it: fencepost run APP starts one"
    asked = act("trigger", "add", "-p", "a=3")
    assert (asked.returncode, asked.stdout, note in asked.stderr) == (0, "run 1 of add\n", True)
    act("cancel", "1")
    assert note in act("retry", "1").stderr
    settle = ("settle", "--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z")
    assert note in act("backfill", *settle).stderr
    for words in (["trigger", "add", "-p", "a=4"], ["retry", "1", "--again"], ["backfill", *settle, "--again"]):
        assert "it waits" not in act(*words, "--json").stderr
    assert "it waits" not in act("trigger", "add", "-p", "a=5", "--delay", "1h").stderr
    book = open_ledger(ledger, ThreadedRuntime())
    with locks.connect(lease_url(ledger), holder="n1") as store:
        lease = store.lock(f"{NODE_LEASE}n1", ttl="10m").acquire()
        node = NewNode("n1", "node-1", lease.grant_id, 1, 0, "0", 1, ("default",), ("add",))
        nodes.join(book, node)
        assert act("trigger", "add", "-p", "a=6").stderr == ""
        lease.release()
    gone = act("trigger", "add", "-p", "a=7").stderr
    assert "it waits: only node-1 has this job, and it has no lease any more: it is probably dead; start a node" in gone
    act("pause", "--all", "--reason", "the bank books twice")
    assert act("trigger", "add", "-p", "a=8").stderr.count("it waits: ") == 1
    book.close()


def test_show_says_that_nobody_is_there_to_run_it(act) -> None:
    run = str(act("trigger", "add", "-p", "a=3", "--json").json["run"])
    assert "no living node" in act("show", run, "--json").json["waits"]


def test_forgetting_a_job_wants_to_be_told_why(act) -> None:
    refused = act("jobs", "forget", "add")
    assert (refused.returncode, "say why, with --reason" in refused.stderr) == (2, True)
    assert act("jobs", "forget", "add", "--reason", "replaced").returncode == 0


def test_the_journal_can_be_asked_for_writes_without_a_key(act) -> None:
    assert act("journal", "--what", "write without a key").returncode == 0
    assert act("journal", "--what", "write without a word").returncode == 2


def test_a_job_is_renamed_for_good_and_a_bulk_job_not_without_its_databases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    app = App(url)
    app.command("nightly", ["true"], every("1h"))
    app.bulk(name="load", read=iterable(lambda after: [(1, 1)]))(lambda tx, items: None)
    publish(app)
    app.close()
    done = call("jobs", "rename", "nightly", "settle", "--by", "ann", "--json", ledger=url)
    assert (done.json["name"], done.json["formerly"], done.json["schedules"]) == ("settle", "nightly", 1)
    assert [each["id"] for each in call("schedules", "list", "--json", ledger=url).json] == ["settle"]
    refused = call("jobs", "rename", "load", "import", ledger=url)
    assert (refused.returncode, "--effects own" in refused.stderr) == (2, True)
    assert "job load is import now" in call("jobs", "rename", "load", "import", "--effects", "own", ledger=url).stdout
