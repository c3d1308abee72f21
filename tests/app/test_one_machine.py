"""`App()` in two containers is two ledgers: a node says so when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import App
from fencepost.app import one_machine
from fencepost.app.composing import start_node
from fencepost.core.events import Event, What
from fencepost.errors import FencepostError


def said(url: str) -> list[Event]:
    events: list[Event] = []
    app = App(url, ttl="10s", observers=[events.append])
    start_node(app).stop(0)
    app.close()
    return [each for each in events if each.what in (What.STORE_WARNING, What.LEDGER_UNSHARED)]


@pytest.mark.parametrize(
    ("environment", "files", "expected"),
    [
        ({}, {}, None),
        ({}, {"proc/1/cgroup": "0::/init.scope\n"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {}, "Kubernetes"),
        ({"container": "podman"}, {}, "a container"),
        ({}, {".dockerenv": ""}, "a container"),
        ({}, {"run/.containerenv": ""}, "a container"),
        ({}, {"proc/1/cgroup": "1:cpu:/kubepods/besteffort/pod1\n"}, "a container"),
    ],
)
def test_what_shows_that_this_is_a_container(
    environment: dict[str, str], files: dict[str, str], expected: str | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert one_machine.container(environment, tmp_path) == expected


@pytest.mark.parametrize(
    ("where", "what", "says"),
    [
        (None, What.STORE_WARNING, "is seen by this machine only"),
        ("Kubernetes", What.LEDGER_UNSHARED, "runs in Kubernetes, and its ledger is a file"),
    ],
    ids=["machine", "container"],
)
def test_a_node_on_sqlite_says_who_does_not_see_it(
    where: str | None, what: What, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_machine, "container", lambda: where)
    url = f"sqlite:///{tmp_path}/app.db"
    [event] = said(url)
    assert (event.what, says in (event.reason or "")) == (what, True)
    assert not said(f"{url}?accept_risk=one-machine")


def test_a_node_that_cannot_start_says_that_alone(tmp_path: Path) -> None:
    (tmp_path / "app.leases.db").mkdir()
    events: list[Event] = []
    app = App(f"sqlite:///{tmp_path}/app.db", observers=[events.append])
    with pytest.raises(FencepostError):
        start_node(app)
    app.close()
    assert not [each for each in events if each.what in (What.STORE_WARNING, What.LEDGER_UNSHARED)]
