"""Nothing of other jobs leaves by REST: every route is asked, with every id, by one who may see one job."""

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.access import HostPrincipal
from fencepost.web import web
from fencepost.web.api.description import api_routes
from tests.access.scene import MARK, MINE, OTHERS, Scene, scene
from tests.api.asking import Api

FROM_OUR_PAGES = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def stage(ledger_url: str) -> Iterator[Scene]:
    yield from scene(ledger_url)


def _bodies(job: str, run: int) -> dict[str, Any]:
    """A body for each act, about one job and run."""
    times = {"first": "2020-01-01T00:00Z", "last": "2020-01-01T03:00Z"}
    chosen = {"job": job, "all_new": True, "reason": "why"}
    return {
        "runs": {"job": job},
        "backfills": {"job": job, **times},
        "dry-run": {"job": job, **times},
        "reprocess": {"job": job},
        "rename": {"old": job, "new": "renamed"},
        "replay": chosen,
        "drop": chosen,
        "again": {"reason": "why"},
        "forget": {"reason": "why"},
        "pauses": {"queue": None, "reason": "why"},
        "drain": {"reason": "why"},
        "release": {"reason": "why"},
        "reset": {"reason": "why"},
        "acknowledge": {"what": "given-up", "id": f"{job}@1.{run}"},
        "unacknowledge": {"what": "given-up", "id": f"{job}@1.{run}"},
    }


def test_no_route_shows_anything_of_other_jobs(stage: Scene) -> None:
    pages = web(stage.app, auth=lambda _: HostPrincipal("ann", {MINE: "admin"}))
    api, asked = Api(pages, None), 0
    for target in stage.others.values():
        bodies = _bodies(target.job, target.run)
        for route in api_routes():
            declared = route.declared
            path = declared.path
            for name, value in (
                ("run_id", target.run),
                ("letter_id", 1),
                ("name", "eve"),
                ("token_id", "x"),
                ("node", "n2"),
            ):
                path = path.replace(f"{{{name}}}", str(value))
            path = path.replace("{name:path}", target.job).replace("{schedule_id:path}", target.schedule)
            path += {"/why": f"?job={target.job}", "/preview": f"?of={target.job}"}.get(path, "")
            body = None if declared.method in ("GET", "DELETE") else bodies.get(path.rpartition("/")[2], {})
            if declared.method == "PUT" and "schedules" in path:
                body = {"job": target.job, "spec": {"every_us": 3_600_000_000}}
            got = api.send(declared.method, path, body, FROM_OUR_PAGES)
            asked += 1
            if path != "/openapi.json":
                assert MARK not in got.text, (declared.method, path, got.text)
                said = got.text.replace(f"'{target.job}'", "").replace(f'"{target.job}"', "")
                assert not [name for name in OTHERS if f'"{name}"' in said or f"'{name}'" in said], (path, got.text)
            assert got.status < 500, (path, got.text)
    assert asked > 200
