"""The pages: what they show and do, that hostile texts stay texts, and a ledger that is away or damaged."""

import json
import re
import zlib
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from sqlalchemy import insert, update

from fencepost import every
from fencepost.access import HostPrincipal
from fencepost.core.noted import LONGEST_REASON
from fencepost.core.schedules.fields import LONGEST
from fencepost.web import web
from tests.access.scene import MARK, MINE, OTHERS, scene, set_run
from tests.web.asking import Browser
from tests.web.conftest import admin

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\x00{{7*7}}</textarea>\ud800"


def targets(run_id):
    return [
        "/", "/runs", "/runs?q=job:settle", "/runs?q=by:ann", f"/runs/{run_id}", "/jobs", "/jobs/settle",
        "/jobs/report%2Fpart", "/jobs/settle/trigger", f"/jobs/settle/trigger?like={run_id}",
        "/jobs/settle/backfill?first=72h&last=now", "/jobs/settle/schedule?id=x&when=every+5m",
        "/why", "/why?job=settle", "/why?job=settle&at=2026-01-01T00:00Z",
        "/schedules", "/schedules/settle", "/schedules/nightly:7", "/nodes", "/nodes?all=1&locks=all",
        "/audit", "/access",
        "/jobs?after=r", "/jobs/settle?figures=35d",
        "/schedules/settle?when=0+3+*+*+*&zone=Europe/Berlin", "/?tz=Asia/Seoul", "/runs?tz=own",
        f"/runs/{run_id}?tz=own", "/runs?q=param.account:7",
    ]  # fmt: skip


@pytest.mark.parametrize("root", ["", "/fencepost", "/a/b"])
def test_links_stay_under_the_prefix_mounted_and_behind_a_proxy(app, dead_run, root):
    mounted = Browser(web(app, auth=admin), root_path=root)
    stripped, kept = Browser(web(app, auth=admin, prefix=root)), Browser(web(app, auth=admin, prefix=root))
    for target in targets(dead_run)[:14]:
        texts = {mounted.get(target).text, stripped.get(target).text, kept.get(root + target).text}
        for text in texts:
            links = re.findall(r'(?:href|src|action)="([^"]*)"', text)
            assert links
            assert [each for each in links if not each.startswith((f"{root}/", "#"))] == []
    answer = mounted.post(f"/runs/{dead_run}/retry", {"state": "dead", "attempt": "2"})
    assert answer.header("location").startswith(f"{root}/runs/{dead_run}?did=retried")


def test_retry_makes_a_run_with_its_reason_and_says_so(app, browser, dead_run):
    page = browser.get(f"/runs/{dead_run}").text
    form = dict(re.findall(r'<input type="hidden" name="(state|attempt)" value="(\w+)">', page))
    answer = browser.post(f"/runs/{dead_run}/retry", {**form, "reason": "it was the network"})
    [made] = app.operations.runs(retry_of=dead_run)
    assert (made.requested_by, made.reason) == ("host:ann", "it was the network")
    assert answer.header("location") == f"/runs/{dead_run}?did=retried&n={made.id}"
    after = browser.get(answer.header("location")).text
    assert f"Run {made.id} was made" in after
    again = browser.post(f"/runs/{dead_run}/retry", form)
    assert again.status == 409
    assert browser.post(f"/runs/{dead_run}/retry", {**form, "again": "on"}).status == 303


def test_pages_take_reasons_as_long_as_everywhere_else(app, browser, dead_run):
    page = browser.get(f"/runs/{dead_run}").text
    assert set(re.findall(r'name="reason" maxlength="(\d+)"', page)) == {str(LONGEST_REASON)}
    form = dict(re.findall(r'<input type="hidden" name="(state|attempt)" value="(\w+)">', page))
    assert browser.post(f"/runs/{dead_run}/retry", {**form, "reason": "x" * (LONGEST_REASON + 1)}).status == 400
    assert browser.post(f"/runs/{dead_run}/retry", {**form, "reason": "x" * LONGEST_REASON}).status == 303


@pytest.mark.parametrize(
    ("act", "form"), [("retry", {}), ("cancel", {"state": "dead", "attempt": "1"}), ("release", {"state": "dead"})]
)
def test_act_on_a_run_that_has_changed_since_is_409_and_does_nothing(app, browser, dead_run, act, form):
    before = app.operations.run(dead_run)
    answer = browser.post(f"/runs/{dead_run}/{act}", form)
    assert answer.status == 409
    assert "Nothing was done" in answer.text
    assert app.operations.run(dead_run) == before


def test_running_run_is_stopped_only_if_its_number_was_typed(app, browser, dead_run):
    set_run(app, dead_run, state="running", ended_at=None)
    form = {"state": "running", "attempt": "2"}
    assert browser.post(f"/runs/{dead_run}/cancel", {**form, "confirm": "yes"}).status == 400
    assert app.operations.run(dead_run).cancel_requested_at is None
    answer = browser.post(f"/runs/{dead_run}/cancel", {**form, "confirm": str(dead_run)})
    assert "did=stopping" in answer.header("location")
    assert app.operations.run(dead_run).cancel_by == "host:ann"


def test_held_run_is_released(app, browser, dead_run):
    set_run(app, dead_run, state="waiting", waits_for="person", ended_at=None, why="the ledger was restored")
    now = browser.get("/").text
    assert "is held for a person: the ledger was restored" in now
    assert browser.post(f"/runs/{dead_run}/release", {"state": "waiting", "attempt": "2"}).status == 303
    assert app.operations.run(dead_run).state == "queued"


def test_trigger_reads_the_form_by_the_signature(app, browser):
    page = browser.get("/jobs/settle/trigger").text
    assert 'name="p.account"' in page
    assert 'type="number"' in page
    answer = browser.post("/jobs/settle/trigger", {"p.account": "9", "p.mode": "", "reason": "why"})
    run_id = int(re.search(r"/runs/(\d+)", answer.header("location"))[1])
    assert app.operations.run(run_id).params == {"account": 9}
    twin = browser.post("/jobs/settle/trigger", {"p.account": "9"})
    assert twin.status == 409
    assert f"/runs/{run_id}" in twin.text
    wrong = browser.post("/jobs/settle/trigger", {"p.account": "nine"})
    assert wrong.status == 400
    assert "must be a whole number" in wrong.text
    assert 'value="nine"' in wrong.text
    assert browser.post("/jobs/none/trigger", {}).status == 404


def test_backfill_is_shown_before_it_is_done(app, browser):
    last = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
    stretch = {"first": (last - timedelta(days=3)).isoformat(), "last": last.isoformat()}
    page = browser.get(
        f"/jobs/settle/backfill?first={stretch['first'].replace('+', '%2B')}&last={stretch['last'].replace('+', '%2B')}"
    )
    assert "3 runs would be asked for" in page.text
    assert app.operations.runs(job="settle") == []
    to_come = browser.get("/jobs/settle/backfill?first=now&last=2090-01-01T00:00Z")
    assert (to_come.status, "which is still to come" in to_come.text) == (400, True)
    assert browser.post("/jobs/settle/backfill", {**stretch, "last": "2090-01-01T00:00Z", "count": "3"}).status == 400
    assert browser.post("/jobs/settle/backfill", {**stretch, "count": "2"}).status == 400
    assert browser.post("/jobs/settle/backfill", {**stretch, "count": "3"}).status == 303
    assert len(app.operations.runs(job="settle")) == 3


def test_schedule_is_paused_resumed_edited_and_deleted(app, browser):
    def drawn():
        import html

        return html.unescape(re.search(r'name="drawn" value="([^"]*)"', browser.get("/schedules/nightly:7").text)[1])

    at_first = drawn()
    assert (
        browser.post("/schedules/nightly:7/pause", {"drawn": at_first, "reason": "migration", "for": "2h"}).status
        == 303
    )
    assert app.schedules.get("nightly:7").pause_reason == "migration"
    assert app.schedules.get("nightly:7").paused_until is not None
    assert ", until " in browser.get("/schedules/nightly:7").text
    assert browser.post("/schedules/nightly:7/pause", {"drawn": at_first}).status == 409
    assert browser.post("/schedules/nightly:7/resume", {"drawn": drawn()}).status == 303
    compared = browser.get("/schedules/nightly:7?when=0+*/2+*+*+*&zone=UTC").text
    assert re.search(r"0 due times gained, \d+ lost, \d+ kept", compared)
    edit = {"when": "0 3 * * *", "zone": "Asia/Seoul", "drawn": drawn(), "reason": "later"}
    assert browser.post("/schedules/nightly:7/edit", edit).status == 303
    assert app.schedules.get("nightly:7").when == "cron 0 3 * * * in Asia/Seoul"
    assert browser.post("/schedules/nightly:7/delete", {"drawn": drawn(), "confirm": "no"}).status == 400
    assert browser.post("/schedules/nightly:7/delete", {"drawn": drawn(), "confirm": "nightly:7"}).status == 303
    assert browser.get("/schedules/nightly:7").status == 404


def test_schedule_is_made_by_a_form_that_shows_its_due_times_first(app, browser):
    typed = {"id": "settle:9", "when": "30 2 * * *", "zone": "Asia/Seoul", "dst": "auto", "p.account": "9"}
    assert "/jobs/settle/schedule" in browser.get("/jobs/settle").text
    assert "It would be due" not in browser.get("/jobs/settle/schedule").text
    looked = browser.get("/jobs/settle/schedule?" + urlencode(typed)).text
    assert looked.count(" 02:30:00+09:00") == 10
    assert "schedules put settle:9 settle &#39;30 2 * * *&#39; --tz Asia/Seoul" in looked
    assert [each.id for each in app.schedules.list(job="settle")] == ["settle"]
    answer = browser.post("/jobs/settle/schedule", {**typed, "reason": "customer 9"})
    assert (answer.status, answer.header("location")) == (303, "/schedules/settle%3A9?did=made")
    made = app.schedules.get("settle:9")
    assert (made.when, made.params, made.is_in_code) == ("cron 30 2 * * * in Asia/Seoul", {"account": 9}, False)
    assert "there is a schedule" in browser.post("/jobs/settle/schedule", {**typed, "when": "every 5m"}).text
    assert app.schedules.get("settle:9") == made
    for wrong in ({"when": "61 * * * *"}, {"id": "a b"}, {"p.account": "nine"}, {"zone": "Mars"}):
        assert browser.get("/jobs/settle/schedule?" + urlencode({**typed, **wrong})).status == 400
        assert browser.post("/jobs/settle/schedule", {**typed, "id": "settle:10", **wrong}).status == 400
    assert len(app.schedules.list(job="settle")) == 2


def test_longest_expression_is_taken_by_forms_and_one_that_is_longer_by_none(app, browser):
    longest = f"{','.join(['0'] * 196)} 3 * * *"
    assert len(longest) == LONGEST - 1
    typed = {"id": "settle:9", "zone": "UTC", "dst": "auto", "p.account": "9"}
    for page in ("/jobs/settle/schedule", "/schedules/settle"):
        for field in re.findall(r'<input[^>]*name="when"[^>]*>', browser.get(page).text):
            assert f'maxlength="{LONGEST}"' in field
        assert browser.get(f"{page}?" + urlencode({**typed, "when": longest})).status == 200
        assert browser.get(f"{page}?" + urlencode({**typed, "when": f"0,{longest}"})).status == 400


def test_page_of_a_schedule_is_about_it_alone_though_its_job_has_others(app, browser):
    app.schedules.put("settle:x", "settle", every("1h"), by="ann")
    for schedule in ("settle", "settle:x"):
        page = browser.get(f"/schedules/{schedule}").text
        assert "cannot be read" not in page
        assert "Next due times" in page
    assert 'href="/schedules/settle%3Ax">schedule settle:x</a>' in browser.get("/audit").text
    unknown = browser.get("/audit?act=nonsense")
    assert (unknown.status, "audit has no act" in unknown.text) == (400, True)


def test_now_says_what_is_wrong_and_when_nothing_is(app, browser, dead_run):
    page = browser.get("/").text
    assert "no node takes part" in page
    assert f"run {dead_run} of settle was given up after 2 attempts: E: boom" in page
    assert page.index("no node takes part") < page.index("was given up")
    app.operations.retry(dead_run, by="ann")
    assert "was given up" not in browser.get("/").text


def test_access_is_changed_by_admins_and_a_token_is_shown_once(app, access, browser):
    access.put_account("bob", "correct horse battery")
    assert browser.post("/access/give", {"principal": "user:bob", "role": "viewer", "job": "settle"}).status == 303
    assert browser.post("/access/give", {"principal": "user:bob", "role": "viewer"}).status == 400
    made = browser.post("/access/tokens/make", {"name": "ci", "role": "viewer", "expires": "1d"}).text
    secret = re.search(r"fp_[0-9a-f]{64}", made)[0]
    page = browser.get("/access").text
    assert secret not in page
    assert "user:bob" in page
    assert "enabled" in page
    assert "no password" not in page  # pages never get the hash, so they cannot say that there is none
    assert browser.post("/access/take", {"principal": "user:bob", "job": "settle"}).status == 303
    [token] = access.api_tokens()
    assert browser.post("/access/tokens/revoke", {"id": token.id}).status == 303
    assert access.api_tokens() == []
    whose = {each.who for each in app.operations.audit.entries(act="change access")}
    assert "host:ann" in whose


def test_hostile_texts_in_every_column_stay_texts(app, browser):
    run_id = app.operations.trigger("settle", by=HOSTILE.replace("\x00", "").replace("\ud800", ""), reason="x").run_id
    text = HOSTILE.replace("\x00", "").replace("\ud800", "")
    texts = {
        "error": text,
        "error_code": text[:60],
        "result": json.dumps(text),
        "progress_note": text,
        "why": text,
        "reason": text,
    }
    set_run(
        app,
        run_id,
        state="dead",
        ended_at=app.ledger.now_us(),
        params=json.dumps({text: text}),
        exclusive_key=text[:100],
        **texts,
    )
    tables = app.ledger.tables
    attempt = {"run_id": run_id, "number": 1, "node": text[:32], "token": 1, "ended_at": 1, "outcome": "failed"}
    attempt |= {"error_code": text[:60], "error": text, "trace": text}
    schedule = update(tables.schedule).values(
        paused_at=1, paused_by=text, pause_reason=text, params=json.dumps({"a": text})
    )
    job = update(tables.job).values(
        doc=text,
        policy=json.dumps({"timeout": text, "queue": text}),
        signature=json.dumps(
            {"parameters": [{"name": text, "kind": {"literal": [[text, text]]}, "required": True}], "more": True}
        ),
    )
    for change in (insert(tables.attempt).values(attempt).inline(), schedule, job):
        app.ledger.write(lambda cursor, change=change: app.ledger.change(cursor, change))
    pages = [
        *targets(run_id),
        f"/runs?q={'%22%3E%3Cscript%3E'}",
        "/jobs?q=%3Cscript%3E",
        "/audit?who=%3Cscript%3E",
        "/why?job=%3Cscript%3E",
        "/schedules/settle?when=%3Cscript%3E",
        "/?tz=%3Cscript%3E",
        "/nothing/%3Cscript%3E",
        "/login?next=%22%3E%3Cscript%3E",
    ]
    for target in pages:
        found = browser.get(target)
        assert found.status < 500, target
        assert "<script>" not in found.text, target
        assert "<img src=x" not in found.text, target
        assert "\u202e" not in found.text, target
    assert "&lt;script&gt;alert(1)" in browser.get(f"/runs/{run_id}").text
    assert "\\u202e" in browser.get(f"/runs/{run_id}").text


def test_cells_that_a_spreadsheet_would_calculate_are_quoted(app, browser, dead_run):
    set_run(app, dead_run, error="=HYPERLINK(1)")
    assert ",'=HYPERLINK(1)," in browser.get("/runs.csv").text


def test_damaged_rows_are_shown_as_damaged(app, browser, dead_run):
    tables = app.ledger.tables
    set_run(app, dead_run, params="{not json", result="{not json")
    for change in (
        update(tables.job).where(tables.job.c.name == "report/part").values(policy='"broken"', signature='"broken"'),
        update(tables.schedule).where(tables.schedule.c.id == "nightly:7").values(spec='{"moon": 1}'),
    ):
        app.ledger.write(lambda cursor, change=change: app.ledger.change(cursor, change))
    assert "{not json" in browser.get(f"/runs/{dead_run}").text
    assert "cannot be read" in browser.get("/schedules/nightly:7").text
    assert browser.get("/schedules").status == 200
    assert "damaged" in browser.get("/jobs").text


def test_ledger_that_is_away_is_503_with_the_time_and_no_traceback(app, browser, monkeypatch):
    from fencepost.errors import LedgerUnavailable

    def away(*_, **__):
        raise LedgerUnavailable("no reply from db.internal:5432")

    assert browser.get("/").status == 200
    monkeypatch.setattr("fencepost.access.authorized.Authorized.now", away)
    answer = browser.get("/")
    assert answer.status == 503
    assert answer.header("retry-after") == "5"
    assert re.search(r"It is 20\d\d-\d\d-\d\dT[\d:]+Z by this machine", answer.text)
    assert "db.internal" not in answer.text
    assert "Traceback" not in answer.text


def test_error_that_nobody_expected_is_500_with_a_number_that_the_log_has(browser, monkeypatch, caplog):
    def broken(*_, **__):
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr("fencepost.access.authorized.Authorized.now", broken)
    answer = browser.get("/")
    assert answer.status == 500
    number = re.search(r"request ([0-9a-f]{16})", answer.text)[1]
    assert number in caplog.text
    assert "secret" not in answer.text


def test_no_page_shows_a_byte_of_jobs_that_the_caller_may_not_see(ledger_url):
    for found in scene(ledger_url):
        browser = Browser(web(found.app, auth=lambda request: HostPrincipal("ann", {MINE: "admin"})))
        ids = [found.mine, *found.others.values()]
        asked = [each for target in ids for each in targets(target.run)[4:5]] + targets(found.mine.run)
        for name in OTHERS:
            quoted = name.replace("/", "%2F")
            paths = (
                "/jobs/{}",
                "/jobs/{}/trigger",
                "/why?job={}",
                "/schedules/{}",
                "/runs?q=job:{}",
                "/runs.json?q=job:{}",
            )
            asked += [each.format(quoted) for each in (*paths, "/jobs/{}/backfill?first=24h&last=now")]
        asked += [
            "/runs.json",
            "/runs.csv",
            "/jobs.json",
            "/schedules.json",
            "/nodes.json",
            "/locks.json",
            f"/lock?name={MARK}%20lock",
            f"/runs?q=by:{MARK}",
            "/runs?q=key:shared",
        ]
        for target in asked:
            text = browser.get(target).text
            for typed in (f"by:{MARK}", f"by%3A{MARK}", f"--by {MARK}"):
                text = text.replace(typed, "")  # what was asked
            assert MARK not in text, target
            ids_of_others = {str(other.run) for other in found.others.values() if str(other.run) not in target}
            assert not ids_of_others & set(re.findall(r"\d{6,7}", text)), target
        for other in found.others.values():
            for act in ("retry", "cancel", "release"):
                assert browser.post(f"/runs/{other.run}/{act}", {"state": "dead", "attempt": "0"}).status == 404


def test_log_of_an_attempt_is_shown_without_control_sequences_and_can_be_downloaded(app, browser, dead_run):
    table = app.ledger.tables.operating["log_chunk"]
    for seq, text in enumerate(("\x1b[31mfirst\x1b[0m <b>line</b>\n", "second\n")):
        row = {"run_id": dead_run, "attempt": 2, "seq": seq, "first_at": 1, "lines": 1, "bytes": len(text)}
        row |= {"dropped": 0, "text": zlib.compress(text.encode())}
        app.ledger.write(lambda cursor, row=row: app.ledger.change(cursor, insert(table).values(row).inline()))
    page = browser.get(f"/runs/{dead_run}").text
    assert "first &lt;b&gt;line&lt;/b&gt;\nsecond" in page
    assert "Nothing was written" in browser.get(f"/runs/{dead_run}?log=1").text
    answer = browser.get(f"/runs/{dead_run}/log.txt")
    assert answer.text == "first <b>line</b>\nsecond\n"
    assert answer.header("content-type").startswith("text/plain")
    assert browser.get(f"/runs/{dead_run}?log=x").status == 400
