"""REST: what it answers, refuses and never says."""

import json
import re
from pathlib import Path

import pytest

from fencepost import App
from fencepost.access.rights import RIGHTS
from fencepost.app.records.runs import RunRecord
from fencepost.app.records.shapes import read_record
from fencepost.core.problems import (
    CROSS_SITE,
    FAILED,
    INVALID_REQUEST,
    PREFIX,
    PROBLEMS,
    REFUSED_BY_STATUS,
    TYPES,
    error_of,
    problem_of,
)
from fencepost.core.rights import NEEDS, HumanAct
from fencepost.errors import AlreadyRequested, IllegalMove, LedgerRefused, LedgerUnavailable, NoSuchRun
from fencepost.web.api.description import SUBJECTS, api_routes
from fencepost.web.routes import right_of, spelled_routes
from tests.access.scene import set_run
from tests.api.asking import Api

HUGE = 2**62 + 1


def test_run_is_triggered_shown_cancelled_and_repeated(api: Api) -> None:
    made = api.post("/runs", {"job": "settle", "params": {"account": 9}, "reason": "why"})
    assert (made.status, made.json["is_new"]) == (201, True)
    run = made.json["run_id"]
    shown = api.get(f"/runs/{run}")
    assert (shown.json["params"], shown.json["reason"], shown.json["state"]) == ({"account": 9}, "why", "queued")
    assert api.get(f"/runs/{run}/waits").json["waits"].startswith("there is no living node")
    assert api.post(f"/runs/{run}/retry").word == "illegal-move"
    assert api.post(f"/runs/{run}/cancel").json == {"run_id": run, "outcome": "cancelled"}
    again = api.post(f"/runs/{run}/retry", {"reason": "once more"})
    assert (again.status, again.json["retry_of"]) == (201, run)
    assert [each["id"] for each in api.get("/runs").json["items"]] == [again.json["run_id"], run]


def test_what_needs_a_person_is_acknowledged_once_and_a_run_repeated_with_other_parameters(api: Api, app: App) -> None:
    run = api.post("/runs", {"job": "settle", "params": {"account": 1}}).json["run_id"]
    set_run(app, run, state="dead", ended_at=app.ledger.now_us(), attempts=1)
    [row] = [each for each in api.get("/now").json["items"] if each["what"] == "given-up"]
    named = {"what": row["what"], "id": row["id"]}
    sent = [
        api.send("POST", "/now/acknowledge", {**named, "reason": "known", "duration": "1h"}, {"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert [each.json for each in sent] == [{"done": True, "count": None}] * 2
    [known] = [each for each in api.get("/now").json["items"] if each["what"] == "given-up"]
    assert known["acknowledged"]["note"] == "known"
    assert "acknowledged" in {each["what"] for each in api.get("/now/changes").json["items"]}
    assert api.post("/now/unacknowledge", named).status == 200
    assert api.post("/now/unacknowledge", named).status == 404
    made = api.post(f"/runs/{run}/retry", {"params": {"account": 2}, "reason": "the wrong one"})
    assert (made.status, made.json["retry_of"]) == (201, run)
    assert api.get(f"/runs/{made.json['run_id']}").json["params"] == {"account": 2}
    assert api.post(f"/runs/{run}/retry", {"params": {"account": "x"}}).status == 422


def test_lists_go_on_where_their_link_says(api: Api) -> None:
    ids = [api.post("/runs", {"job": "settle", "params": {"account": n}}).json["run_id"] for n in range(5)]
    seen, link = [], "/runs?limit=2&job=settle"
    while link is not None:
        got = api.get(link.removeprefix("/api/v1")).json
        seen += [each["id"] for each in got["items"]]
        link = got["next"]
    assert seen == ids[::-1]
    assert [each["id"] for each in api.get("/runs", after=ids[0], limit=2).json["items"]] == ids[1:3]


def test_runs_are_found_by_parameter_and_search_without_an_index_says_how_far_it_came(
    api: Api, limited: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [
        api.post("/runs", {"job": "settle", "params": {"account": n % 2, "mode": f"m:{n}"}}).json["run_id"]
        for n in range(4)
    ]
    others = api.post("/runs", {"job": "secret-of-others", "params": {"account": 1}}).json["run_id"]
    assert [each["id"] for each in api.get("/runs?param=account:1").json["items"]] == [others, ids[3], ids[1]]
    assert [each["id"] for each in limited.get("/runs?param=account:1").json["items"]] == [ids[3], ids[1]]
    got = api.get("/runs?param=account:1&param=mode:m:3").json
    assert ([each["id"] for each in got["items"]], got["search"]) == ([ids[3]], None)
    for wrong in ("param=account", "param=account:1&param=account:2", "param=no%20name:1"):
        assert api.get(f"/runs?{wrong}").status == 422
    monkeypatch.setattr("fencepost.app.searching.MOST_READ", 2)
    monkeypatch.setattr("fencepost.app.searching._FIRST_STRETCH", 1)
    seen, asked, link = [], 0, "/runs?requested_by=nobody&job=settle"
    while link is not None:
        got, asked = api.get(link.removeprefix("/api/v1")).json, asked + 1
        seen += got["items"]
        link = got["next"]
        assert (got["search"] is None) == (link is None)
        if link is not None:
            assert {"looked_through", "looked_back_to", "looked_back_at"} == set(got["search"])
    assert (seen, asked) == ([], 2)


def test_ids_beyond_2_to_the_53_are_exact(api: Api, app: App) -> None:
    set_run(app, api.post("/runs", {"job": "settle"}).json["run_id"], id=HUGE, token=HUGE)
    text = api.get(f"/runs/{HUGE}").text
    assert f'"id":{HUGE}' in text
    assert read_record(RunRecord, json.loads(text)) == app.operations.run(HUGE)
    assert api.post(f"/runs/{HUGE}/cancel").json["run_id"] == HUGE


def test_names_with_slashes_are_safe_in_paths(api: Api) -> None:
    for path in ("/jobs/report/part", "/jobs/report%2Fpart"):
        assert api.get(path).json["name"] == "report/part"
    for path in ("/schedules/report/part", "/schedules/report%2Fpart"):
        assert api.post(f"{path}/pause").json["paused_at"] is not None
        assert api.post(f"{path}/resume").json["paused_at"] is None
    made = api.send("PUT", "/schedules/a/pause", {"job": "settle", "spec": {"every_us": 60_000_000}})
    assert made.json["id"] == "a/pause"
    assert api.get("/schedules/a/pause").json["job"] == "settle"
    assert api.post("/schedules/a/pause/pause").json["id"] == "a/pause"
    assert api.send("DELETE", "/schedules/a/pause").json["done"]
    assert api.get("/schedules/a/pause").word == "no-such-schedule"


def test_what_is_not_there_and_what_is_others_look_alike(api: Api, limited: Api) -> None:
    theirs = api.post("/runs", {"job": "secret-of-others"}).json["run_id"]
    pairs = [
        (f"/runs/{theirs}", "/runs/999"),
        (f"/runs/{theirs}/attempts", "/runs/999/attempts"),
        ("/jobs/secret-of-others", "/jobs/secret-of-nobody"),
        ("/why?job=secret-of-others", "/why?job=secret-of-nobody"),
        ("/preview?of=secret-of-others", "/preview?of=secret-of-nobody"),
    ]
    for there, nowhere in pairs:
        got, missing = limited.get(there), limited.get(nowhere)
        assert (got.status, got.word) == (missing.status, missing.word) == (404, got.word)
        assert got.text.replace(str(theirs), "999").replace("secret-of-others", "secret-of-nobody") == missing.text
    assert limited.post("/runs", {"job": "secret-of-others"}).status == 404
    assert "secret-of-others" not in limited.get("/jobs").text + limited.get("/journal").text


def test_every_refusal_is_a_problem_with_its_status(api: Api, limited: Api, pages, token) -> None:
    viewer = Api(pages, token("viewer", "settle"))
    run = api.post("/runs", {"job": "settle"}).json["run_id"]
    known = api.post("/runs", {"job": "settle"})
    assert (known.status, known.word, known.json["run_id"]) == (409, "already-requested", run)
    for got in (
        viewer.post("/runs", {"job": "settle"}),
        limited.get("/audit"),
        limited.post("/users", {"name": "eve"}),
    ):
        assert (got.status, got.word) == (403, "not-allowed")
    for bad in ("fp_wrong", None):
        got = Api(pages, bad).get("/runs")
        assert (got.status, got.word) == (401, "not-authenticated")
    got = api.get("/nowhere")
    assert (got.status, got.word) == (404, "no-such-address")
    got = api.send("PATCH", "/runs")
    assert (got.status, got.word, got.headers["allow"]) == (405, "method-not-allowed", "GET, POST")
    assert got.json["detail"] == "This address has no PATCH, only GET and POST."
    got = api.send("POST", "/runs", b"x" * 300_000)
    assert (got.status, got.word) == (413, "too-large")


def test_what_the_guard_refuses_has_a_type_of_its_own(api: Api, pages) -> None:
    stranger = Api(pages, None)
    for got, status, word in (
        (stranger.send("POST", "/runs", {"job": "settle"}), 403, "cross-site"),
        (api.get("/runs?q=" + "x" * 9_000), 414, "address-too-long"),
        (api.send("GET", "/runs", headers={"host": "elsewhere.example"}), 400, "invalid-request"),
        (api.send("POST", "/runs", {"job": "settle"}, {"if-match": '"x'}), 422, "invalid-parameters"),
    ):
        assert (got.status, got.word) == (status, word), got.text
    elsewhere = Api(pages, None, host="elsewhere.example").get("/runs")
    assert (elsewhere.status, elsewhere.word) == (421, "other-host")


def test_description_lists_every_type_that_is_sent(api: Api) -> None:
    listed = api.get("/openapi.json").json["x-problem-types"]
    assert listed == list(TYPES)
    assert len(set(listed)) == len(listed)
    sent = (*(each.word for each in PROBLEMS), INVALID_REQUEST, FAILED, CROSS_SITE, *REFUSED_BY_STATUS.values())
    assert {f"{PREFIX}{word}" for word in sent} == set(listed)


def test_commands_understand_types_of_the_guard_and_servers_that_send_none() -> None:
    for status, word in REFUSED_BY_STATUS.items():
        ours, older = (error_of({"type": each, "status": status}) for each in (f"{PREFIX}{word}", "about:blank"))
        assert type(ours) is type(older), word


BAD = {
    "an unknown parameter": ("GET", "/runs?of=1", None, "query.of"),
    "one given twice": ("GET", "/runs?limit=1&limit=2", None, "query.limit"),
    "too many": ("GET", "/runs?limit=501", None, "query.limit"),
    "none": ("GET", "/runs?limit=0", None, "query.limit"),
    "an id beyond all": ("GET", f"/runs/{2**63}", None, "path.run_id"),
    "an unknown field": ("POST", "/runs", {"job": "settle", "jbo": 1}, "body.jbo"),
    "a text for a number": ("POST", "/runs", {"job": "settle", "priority": "1"}, "body.priority"),
    "a body that is not JSON": ("POST", "/runs", b"\x98", "body"),
    "no body": ("POST", "/runs", None, "body"),
    "a year beyond all": ("GET", "/preview?of=settle&year=99999", None, "query.year"),
}


@pytest.mark.parametrize("case", BAD)
def test_value_that_does_not_fit_is_refused_by_its_name(case: str, api: Api) -> None:
    method, path, body, field = BAD[case]
    got = api.send(method, path, body)
    assert (got.status, got.word) == (400 if isinstance(body, bytes) else 422, "invalid-request")
    if got.status == 400:
        return
    assert field in [each["field"] for each in got.json["errors"]]


def test_body_that_does_not_say_that_it_is_json_is_told_so_and_none_at_all_is_empty(api: Api, app: App) -> None:
    for headers in ({"content-type": "application/x-www-form-urlencoded"}, {"content-type": ""}):
        got = api.send("POST", "/runs", b'{"job": "settle"}', headers)
        assert (got.status, got.word) == (422, "invalid-request")
        assert "Content-Type: application/json" in got.json["detail"]
    run = api.post("/runs", {"job": "settle"}).json["run_id"]
    assert api.send("POST", f"/runs/{run}/cancel").status == 200
    assert api.send("POST", f"/runs/{run}/retry").status == 201
    again = api.send("POST", f"/runs/{run}/retry")
    assert (again.status, again.word) == (409, "already-requested")
    assert '"again": true' in again.json["detail"]
    assert api.send("POST", "/runs").status == 422  # without a job


def test_bodies_in_the_docs_are_taken(api: Api) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    examples = re.findall(r"^(PUT|POST) (/\S+)\n(\{.*\})$", docs, re.MULTILINE)
    assert len(examples) >= 4
    for method, path, body in examples:
        assert api.send(method, path, json.loads(body)).status in (200, 201), body


def test_expression_is_previewed_as_by_the_command(api: Api) -> None:
    [shown] = api.get("/preview", of="30 2 * * *", tz="Europe/Berlin", year=2026).json["items"]
    assert (shown["tz"], len(shown["next"]), len(shown["changes"])) == ("Europe/Berlin", 5, 2)
    assert api.get("/preview", of="every 5m").json["items"][0]["schedule"] is None
    assert api.get("/preview", of="61 2 * * *").word == "invalid-schedule"
    assert api.get("/preview", of="settle").json["items"][0]["schedule"] == "settle"
    assert api.get("/preview", of="nothing").status == 404


def test_values_that_only_the_ledger_can_judge_are_refused_as_well(api: Api) -> None:
    for body in (
        {"job": "settle", "params": {"account": "seven"}},
        {"job": "settle", "params": {"wrong": 1}},
        {"job": "settle", "at": "yesterday"},
        {"job": "settle", "delay": "5 parsecs"},
        {"job": "settle", "at": "2026-01-01T00:00Z", "delay": "1h"},
    ):
        assert api.post("/runs", body).status == 422, body
    for spec in ({}, {"cron": "61 * * * *"}, {"every_us": "x"}, {"at_us": [10**30]}, {"cron": "* * * * *", "tz": "X"}):
        assert api.send("PUT", "/schedules/x", {"job": "settle", "spec": spec}).status == 422, spec
    assert api.get("/runs", state="sleeping").status == 422
    assert api.get("/runs", since="0001-01-01T00:00:00+14:00").status in (200, 422)
    assert not api.get("/runs").json["items"]


def test_same_key_is_one_act_and_another_body_is_refused(api: Api, app: App) -> None:
    body = {"job": "settle", "params": {"account": 1}}
    first, again = (api.post("/runs", body, Idempotency_Key="k-1") for _ in range(2))
    assert (first.status, first.text) == (again.status, again.text)
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert api.post("/runs", {**body, "reason": "x"}, Idempotency_Key="k-1").word == "key-reused"
    assert api.post("/runs", body, Idempotency_Key="two words").word == "invalid-name"
    run = first.json["run_id"]
    for _ in range(2):
        assert api.post(f"/runs/{run}/cancel", Idempotency_Key="k-2").json["outcome"] == "cancelled"
    assert len(api.get("/runs").json["items"]) == 1


def test_secrets_are_shown_once_and_kept_nowhere(api: Api, app: App) -> None:
    body = {"name": "ci", "role": "viewer", "expires_in": "1d"}
    first, again = (api.post("/api-tokens", body, Idempotency_Key="t") for _ in range(2))
    secret = first.json["secret"]
    assert (secret[:3], again.json) == ("fp_", first.json | {"secret": None})
    word = "correct horse battery"
    made = [api.post("/users", {"name": "ann", "password": word}, Idempotency_Key="u").status for _ in range(2)]
    assert made == [201, 201]
    # A password is in no hash that is kept, so another one is not noticed.
    assert api.post("/users", {"name": "ann", "password": word * 2}, Idempotency_Key="u").status == 201
    assert api.get("/users").json["items"][0]["has_password"]
    table = app.ledger.tables.operating["answer"]
    kept = str(app.ledger.read(lambda cursor: app.ledger.rows(cursor, table.select())))
    everything = api.get("/audit").text + api.get("/journal").text + api.get("/api-tokens").text + kept
    assert secret not in everything
    assert word not in everything


def test_act_on_what_has_changed_since_is_refused(api: Api, app: App) -> None:
    run = api.post("/runs", {"job": "settle"}).json["run_id"]
    seen = api.get(f"/runs/{run}").headers["etag"]
    set_run(app, run, state="running", attempts=1)
    got = api.post(f"/runs/{run}/cancel", If_Match=seen)
    assert (got.status, got.word) == (412, "state-changed")
    assert api.get(f"/runs/{run}").json["cancel_requested_at"] is None
    assert api.post(f"/runs/{run}/cancel", If_Match=api.get(f"/runs/{run}").headers["etag"]).status == 200
    schedule = api.get("/schedules/settle").headers["etag"]
    assert api.post("/schedules/settle/pause", If_Match=schedule).status == 200
    assert api.post("/schedules/settle/resume", If_Match=schedule).status == 412
    spec = {"job": "settle", "spec": {"cron": "0 4 * * *", "tz": "UTC"}}
    assert api.send("PUT", "/schedules/x", spec, {"If-None-Match": "*"}).status == 200
    assert api.send("PUT", "/schedules/x", spec, {"If-None-Match": "*"}).status == 412
    assert api.post("/schedules/settle/resume", If_Match="what").status == 422


def test_ledger_that_is_away_is_503_with_a_time_to_come_back(api: Api, app: App, monkeypatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise LedgerUnavailable("postgresql://ann:hunter2@db is gone")

    monkeypatch.setattr("fencepost.app.operations.Operations.find_runs", away)
    got = api.get("/runs")
    assert (got.status, got.word, got.headers["retry-after"]) == (503, "ledger-unavailable", "5")
    assert "hunter2" not in got.text
    assert "db" not in got.json["detail"].split()


def test_unexpected_error_is_a_number_and_no_more(api: Api, monkeypatch) -> None:
    monkeypatch.setattr("fencepost.app.operations.Operations.find_runs", lambda *_, **__: 1 / 0)
    got = api.get("/runs")
    assert (got.status, got.word) == (500, "failed")
    assert "division" not in got.text


def test_errors_come_back_as_they_were() -> None:
    twin = {"run_id": 7, "job": "settle", "state": "queued", "requested_by": "ann", "requested_at": "2026"}
    for error in (NoSuchRun(7), IllegalMove("dead", "retry"), AlreadyRequested("asks for the same", **twin)):
        document = problem_of(error)
        again = error_of(json.loads(json.dumps(document)))
        assert (type(again), str(again)) == (type(error), str(error))
    assert again.state == "queued"
    for each in PROBLEMS:
        assert each.status in (401, 403, 404, 409, 412, 422, 429, 503)
    refused = LedgerRefused("relation fencepost_run of host db1")
    refused.__cause__ = ValueError()
    assert problem_of(refused) is None


def test_description_has_every_route_with_its_right_and_no_other(api: Api, pages) -> None:
    described = api.get("/openapi.json").json
    assert described["openapi"] == "3.1.0"
    routes = {each for route in api_routes() for each in spelled_routes(route)}
    named = {
        f"{method.upper()} {path}": operation
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    }
    plain = {each.replace(":path}", "}") for each in routes}
    assert set(named) == plain
    for route in api_routes():
        [spelled] = spelled_routes(route)
        operation = named[spelled.replace(":path}", "}")]
        assert HumanAct(operation["x-right"]) is right_of(route)
        assert right_of(route) in NEEDS
        assert operation["summary"], spelled
    text = json.dumps(described)
    for name in set(_references(described)):
        assert name in described["components"]["schemas"], name
    assert "/api/v1/runs/{run_id}/retry" in text


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in _references(inner)]
    return [each for inner in value for each in _references(inner)] if isinstance(value, list) else []


NOT_BY_REST = {
    "principal", "caller", "scope_key", "check", "may", "must_say", "once",  # who asks
    "read_params",  # the client does it, by the job's signature
    "schedules.iterate", "letters.iterate",  # the client goes from page to page
    "locks.stores",  # a store that is not there is refused where it is asked for
    "access.put_account",  # users: add, or set the password
}  # fmt: skip


def test_every_method_of_authorized_has_a_route_under_the_same_right() -> None:
    """The table of rights names methods, and the routes call them: compared by the names in their code."""
    called: dict[str, HumanAct] = {}
    for subject in SUBJECTS:
        for each in subject:
            codes = [each.handler.__code__, *(c for c in each.handler.__code__.co_consts if hasattr(c, "co_names"))]
            names = [name for code in codes for name in code.co_names]
            for name in RIGHTS:
                *part, last = name.split(".")
                if last in names and all(word in names for word in part):
                    called.setdefault(name, each.right)
    assert set(RIGHTS) - NOT_BY_REST - set(called) == set()


def test_paths_and_links_have_the_prefix_that_a_proxy_shows(app: App, token) -> None:
    from fencepost.web import web

    behind = Api(web(app, prefix="/ops/jobs"), token(), root_path="/ops/jobs")
    for n in range(2):
        behind.post("/runs", {"job": "settle", "params": {"account": n}})
    assert behind.get("/runs", limit=1).json["next"].startswith("/ops/jobs/api/v1/runs?")


FAR = ("0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:00Z", "9999-12-31T23:59:00-23:00")


@pytest.mark.parametrize("at", FAR)
def test_time_beyond_the_calendar_is_refused_wherever_one_is_taken(at: str, api: Api) -> None:
    looks = [
        api.get("/figures", since=at),
        api.get("/figures", job="settle", since=at),
        api.get("/runs", since=at),
        api.get("/runs", until=at),
        api.get("/journal", since=at),
        api.get("/why", job="settle", at=at),
    ]
    acts = [
        api.post("/runs", {"job": "settle", "at": at}),
        api.post("/backfills", {"job": "settle", "first": at, "last": FAR[0], "reason": "x"}),
        api.post("/backfills/dry-run", {"job": "settle", "first": FAR[-1], "last": at}),
        api.post("/reprocess", {"since": at}),
        api.post("/schedules/settle/pause", {"until": at}),
        api.post("/pauses", {"queue": None, "until": at, "reason": "x"}),
        api.post("/audit/prune", {"before": at, "reason": "x"}),
    ]
    for got in looks + acts:
        assert (got.status, got.word) == (422, "invalid-time"), got.text
        assert "outside the calendar" in got.json["detail"]


def test_delay_beyond_the_calendar_is_refused(api: Api) -> None:
    for delay in ("3000000d", "99999999999d", "9" * 39 + "d"):
        assert api.post("/runs", {"job": "settle", "delay": delay}).word == "invalid-parameters"
    assert not api.get("/runs").json["items"]


def test_duration_needs_its_unit_as_on_the_command_line(api: Api) -> None:
    takes = {
        "delay": ("/runs", {"job": "settle"}),
        "duration": ("/pauses", {"queue": None, "reason": "x"}),
        "duration of a schedule": ("/schedules/settle/pause", {}),
        "duration of an acknowledgement": ("/now/acknowledge", {"what": "given-up", "id": "x"}),
        "expires_in": ("/api-tokens", {"name": "ci", "role": "viewer"}),
    }
    for case, (path, body) in takes.items():
        field = case.partition(" ")[0]
        got = api.post(path, {**body, field: "5"})
        assert (got.status, got.word) == (422, "invalid-duration"), case
        assert f"{field} '5' has no unit: write 5s, 5m, 5h or 5d" in got.json["detail"]
        assert api.post(path, {**body, field: 5}).word == "invalid-request"
    assert not api.get("/runs").json["items"]
