"""Pauses and draining by REST."""

from fencepost import App
from fencepost.ledger import nodes
from fencepost.ledger.nodes import NewNode
from tests.api.asking import Api


def test_everything_is_paused_shown_and_resumed(api: Api, limited: Api, app: App) -> None:
    body = {"queue": None, "reason": "the bank is closed", "duration": "2h"}
    made = api.post("/pauses", body, Idempotency_Key="k")
    assert (made.json["queue"], made.json["reason"], made.json["ignored_by"]) == (None, "the bank is closed", [])
    again = api.post("/pauses", body, Idempotency_Key="k")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json["paused_at"] == made.json["paused_at"]
    assert len(app.operations.journal(what="everything paused")) == 1
    for each in (api, limited):
        assert [found["reason"] for found in each.get("/pauses").json["items"]] == ["the bank is closed"]
    waits = api.post("/runs", {"job": "settle"})
    assert waits.json["paused"].endswith(": the bank is closed")
    assert limited.post("/pauses", body).status == 403
    assert limited.post("/pauses/resume", {"queue": None}).status == 403
    assert api.post("/pauses", {"queue": None, "reason": " "}).status == 422
    assert api.post("/pauses", {"reason": "which?"}).status == 422
    assert api.post("/pauses", {"queue": "no-such", "reason": "why"}).status == 422
    assert api.post("/pauses/resume", {"queue": None}).json == {"queue": None, "was_paused": True, "left": []}
    assert api.post("/runs", {"job": "settle", "again": True}).json["paused"] is None


def test_node_is_asked_to_drain(api: Api, limited: Api, app: App) -> None:
    nodes.join(app.ledger, NewNode("n1", "host 1", "g", 1, 0, "1.0/0005/0001", 4, ("default",), ("settle",)))
    assert limited.post("/nodes/n1/drain", {"reason": "why"}).status == 403
    asked = api.post("/nodes/host%201/drain", {"reason": "the machine is replaced"})
    assert (asked.json["id"], asked.json["state"]) == ("n1", "draining")
    [line] = app.operations.journal(what="node asked to drain")
    assert (line.node, line.reason) == ("n1", "the machine is replaced")
    assert api.post("/nodes/n2/drain", {"reason": "why"}).word == "no-such-node"


def test_pause_is_changed_only_if_it_is_the_one_that_was_seen(api):
    body = {"queue": None, "reason": "the bank is closed"}
    seen = api.post("/pauses", body, If_None_Match="*").json["version"]
    assert api.post("/pauses", body, If_None_Match="*").status == 412
    assert api.post("/pauses", {**body, "reason": "still"}, If_Match=f'"{seen}"').status == 200
    assert api.post("/pauses", {**body, "reason": "and again"}, If_Match=f'"{seen}"').status == 412
    assert api.post("/pauses/resume", {"queue": None}, If_Match=f'"{seen}"').status == 412
    [found] = api.get("/pauses").json["items"]
    assert found["reason"] == "still"
    assert api.post("/pauses/resume", {"queue": None}, If_Match=f'"{found["version"]}"').status == 200
