"""Locks by REST and by ``fencepost --server``: the same as beside the ledger, once, and only from the holder shown."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import App, locks
from fencepost.leases.locks import Locks
from fencepost.ledger.urls import lease_url
from fencepost.web import web
from tests.access.scene import set_run
from tests.api.asking import Api
from tests.api.serving import served
from tests.cli.inside import call

NAME = "month-end/2026 & more"
PATH = "/locks/month-end%2F2026%20%26%20more"


@pytest.fixture
def store(ledger_url: str) -> Iterator[Locks]:
    with locks.connect(lease_url(ledger_url), holder="h1") as opened:
        yield opened


def test_a_lock_is_listed_shown_and_released_once(app: App, api: Api, store: Locks) -> None:
    token = store.lock(NAME).acquire().token
    store.lock("zz").acquire().release()
    first = api.get("/locks", limit=1).json
    assert [each["name"] for each in first["items"]] == [NAME]
    assert [each["name"] for each in api.get(first["next"].removeprefix("/api/v1")).json["items"]] == ["zz"]
    assert [each["name"] for each in api.get("/locks", held="true").json["items"]] == [NAME]
    shown = api.get(PATH).json
    assert (shown["held"], shown["token"], shown["store"]) == (True, token, "ledger")
    assert api.get("/locks/none").word == "no-such-lock"
    assert api.post(f"{PATH}/release", {}).status == 422
    other = api.post(f"{PATH}/release", {"reason": "why", "token": token + 1})
    assert (other.status, other.word) == (412, "state-changed")
    assert api.post(f"{PATH}/release", {"reason": "why", "store": "leases"}).status == 422
    body, key = {"reason": "why", "token": token}, {"Idempotency-Key": "k1"}
    done = api.send("POST", f"{PATH}/release", body, key)
    assert (done.json["released"], done.json["token"]) == (True, token)
    again = api.send("POST", f"{PATH}/release", body, key)
    assert (again.text, again.headers["idempotency-replayed"]) == (done.text, "true")
    assert len(app.operations.audit.entries(act="lock released")) == 1
    assert api.get("/lock-history", name=NAME).json["items"][0]["why"] == "revoked"
    assert api.post(f"{PATH}/reset", {"reason": "why"}).word == "not-possible"
    outcomes = [(each.act, each.outcome) for each in app.operations.audit.entries()]
    assert outcomes[:2] == [("release lock", "not done"), ("release lock", "begun")]


def test_rights(pages: Any, token: Callable[..., str], store: Locks) -> None:
    store.lock(NAME).acquire()
    for role, jobs in (("operator", ()), ("admin", ("settle",))):
        refused = Api(pages, token(role, *jobs)).post(f"{PATH}/release", {"reason": "why"})
        assert refused.status == 403, (role, refused.text)
    assert Api(pages, token("viewer")).get("/locks").status == 200
    some = Api(pages, token("admin", "settle"))
    assert [some.get(path).status for path in ("/locks", PATH, "/lock-history", "/leaders")] == [403] * 4
    assert some.get("/keys").json["items"] == []


def test_keys_go_from_page_to_page(app: App, api: Api) -> None:
    for key in ("a", "b", "c"):
        set_run(app, app.operations.trigger("settle", by="x", again=True).run_id, state="running", exclusive_key=key)
    found, path = [], "/keys?limit=2"
    while path:
        page = api.get(path).json
        found += [each["key"] for each in page["items"]]
        path = (page["next"] or "").removeprefix("/api/v1")
    assert found == ["a", "b", "c"]


def test_commands_do_the_same_by_a_server_and_beside_the_ledger(
    app: App, ledger_url: str, token: Callable[..., str], store: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FENCEPOST_STORE", raising=False)
    env = {"FENCEPOST_TOKEN": token()}
    with served(web(app)) as address:
        server, ledger = ("--server", address), ("--ledger", ledger_url)
        for why in ("by a server", "beside the ledger"):
            lease = store.lock(NAME).acquire()
            both = [
                [call(*server, "locks", *words, env=env) for words in (("list",), ("show", NAME), ("show", "none"))],
                [call("locks", *words, *ledger) for words in (("list",), ("show", NAME), ("show", "none"))],
            ]
            for remote, beside in zip(*both, strict=True):
                assert (remote.returncode, remote.stderr) == (beside.returncode, beside.stderr)
                assert [each.partition("free in")[0][:60] for each in remote.stdout.splitlines()] == [
                    each.partition("free in")[0][:60] for each in beside.stdout.splitlines()
                ]
            words = ("locks", "release", NAME, "--yes", "--json")
            act = (*server, *words) if why == "by a server" else (*words, *ledger)
            assert "--reason" in call(*act, env=env).stderr
            done = call(*act, "--reason", why, env=env)
            assert done.json["released"] is True
            assert call(*act, "--reason", why, env=env).json["released"] is False
            with pytest.raises(locks.LeaseLost):
                lease.check()
        history = call(*server, "locks", "history", NAME, "--json", env=env).json
        assert [each["why"] for each in history] == ["revoked", "revoked"]
        assert "not both" in call(*server, "locks", "list", "--store", "memory://", env=env).stderr
        assert "--by does not work" in call(*server, *words, "--reason", "x", "--by", "eve", env=env).stderr
    whys = [each.reason for each in app.operations.audit.entries(act="lock released")]
    assert whys == ["beside the ledger", "by a server"]
    assert "keeps no record" in call(*words, "--store", ledger_url, "--reason", "x").stderr
