"""Runs and leases at fences outside the ledger: what they show, and that the successor's write shuts the former out."""

from pathlib import Path

import pytest

from fencepost import App, locks
from fencepost.errors import LeaseLost
from fencepost.fences import FencingToken, fence_headers, file_mark, write_fenced
from fencepost.ledger.identity import identity
from fencepost.testing import until


def test_a_lease_shows_its_name_token_and_grant(tmp_path: Path) -> None:
    with locks.connect("memory://") as store, store.lock("report") as lease:
        assert lease.fencing == FencingToken("report", lease.token, lease.grant_id, lease.holder)
        write_fenced(tmp_path / "a", "x", lease)
        assert file_mark(tmp_path / "a") == (lease.token, lease.grant_id, lease.holder)


def test_a_former_holder_is_shut_out_by_its_successor(tmp_path: Path) -> None:
    with locks.connect("memory://") as store:
        with store.lock("report") as first:
            write_fenced(tmp_path / "a", "first", first)
        with store.lock("report") as second:
            write_fenced(tmp_path / "a", "second", second)
        with pytest.raises(LeaseLost, match="a newer holder"):
            write_fenced(tmp_path / "a", "late", first)
    assert (tmp_path / "a").read_text() == "second"


def test_a_lease_that_knows_it_is_lost_does_not_even_come_to_the_fence(tmp_path: Path) -> None:
    with locks.connect("memory://") as store:
        lease = store.lock("report").acquire()
        lease.end("taken away")
        with pytest.raises(LeaseLost, match="this was known before the fence was asked"):
            write_fenced(tmp_path / "a", "late", lease)
        with pytest.raises(LeaseLost):
            fence_headers(lease)
    assert list(tmp_path.iterdir()) == []


def test_a_run_shows_its_exclusive_key_and_its_attempt(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db")
    shown: dict[str, FencingToken] = {}

    def named(key: str) -> str:
        return f"ledger:{identity(app.ledger)[:12]}:{key}"

    @app.job(exclusive="stock:{item}")
    def keyed(run, item: int):
        shown["keyed"] = run.fencing
        write_fenced(tmp_path / "stock", str(item), run)
        assert run.fencing == FencingToken(named("stock:7"), run.token, f"{run.node}/{run.id}/1", run.node)

    @app.job(overlap="allow")
    def free(run):
        shown["free"] = run.fencing
        assert run.fencing.key == f"ledger:{identity(app.ledger)[:12]}/run:{run.id:012}"

    with app.running():
        made = [keyed.enqueue(item=7), free.enqueue()]
        until(
            lambda: all(app.operations.run(each.run_id).state == "succeeded" for each in made),
            20,
            what="both have succeeded",
        )
    app.close()
    assert (tmp_path / "stock").read_text() == "7"
    assert file_mark(tmp_path / "stock") == shown["keyed"][1:]
