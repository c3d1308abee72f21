"""A process forked inside the block of a fenced transaction: the transaction stays the parent's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.children import in_child
from tests.fence.grounds import EFFECTS, WAYS, Ground, write
from tests.fence.test_transactions import KINDS, urls

ENDS = ("normally", "by an error")


@pytest.fixture(scope="module", params=[(kind, "ledger") for kind in KINDS], ids="-".join)
def shared_ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(*urls(*request.param, request, tmp_path_factory.mktemp("ground")))
    yield ground
    ground.close()


@pytest.fixture
def ground(shared_ground: Ground) -> Ground:
    shared_ground.change(f"DELETE FROM {EFFECTS}")
    return shared_ground


@pytest.fixture(params=WAYS)
def source(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Any]:
    with WAYS[request.param](ground.url) as source:
        yield source


def leave_in_child(block: Any, how: str) -> bool:
    """Leave the block as the child's own code would."""
    error = RuntimeError("the child's own") if how == "by an error" else None
    return not block.__exit__(None if error is None else RuntimeError, error, None)


@pytest.mark.parametrize("how", ENDS)
def test_a_child_that_leaves_the_block_takes_nothing_from_its_parent(ground: Ground, source: Any, how: str) -> None:
    block = ground.run().transaction(source)
    with block as tx:
        write(tx, 1)
        assert in_child(lambda: leave_in_child(block, how))
        write(tx, 2)
    assert ground.effects() == [1, 2]


def test_what_the_child_asks_of_it_is_refused(ground: Ground, source: Any, request: pytest.FixtureRequest) -> None:
    if ground.kind == "sqlite" and "driver" in request.node.callspec.params["source"]:
        pytest.skip("nothing can be put before a connection of sqlite3")

    def work(tx: Any) -> bool:
        with pytest.raises(Exception, match="belongs to the parent of this forked process"):
            write(tx, 3)
        return True

    with ground.run().transaction(source) as tx:
        write(tx, 1)
        assert in_child(lambda: work(tx))
    assert ground.effects() == [1]


def test_nothing_is_enqueued_in_it_by_the_child(ground: Ground, source: Any) -> None:
    handle = ground.app.job(name=f"job_{os.urandom(8).hex()}")(lambda: None)

    def work(tx: Any) -> bool:
        with pytest.raises(Exception, match="belongs to the parent of this forked process"):
            handle.enqueue(tx=tx)
        return True

    with ground.run().transaction(source) as tx:
        assert in_child(lambda: work(tx))
    assert ground.app.operations.runs(job=handle.job.name) == []
