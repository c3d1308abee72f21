"""Fixtures: another database than the ledger's, with the tables of effects, on each server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fence.grounds import EFFECTS, Ground
from tests.fence.test_transactions import KINDS, urls

__all__ = ["ground", "server_ground", "shared_ground", "shared_server_ground"]


def _made(request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(*urls(request.param, "other", request, folders.mktemp("ground")))
    yield ground
    ground.close()


def _emptied(ground: Ground) -> Ground:
    ground.change(f"DELETE FROM {EFFECTS}")
    ground.change(f"DELETE FROM {ground.fence_table}")
    return ground


@pytest.fixture(scope="module", params=KINDS)
def shared_ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Another database than the ledger's, with the tables of effects."""
    yield from _made(request, tmp_path_factory)


@pytest.fixture
def ground(shared_ground: Ground) -> Ground:
    return _emptied(shared_ground)


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def shared_server_ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The same, where there is a server and so more than one writer."""
    yield from _made(request, tmp_path_factory)


@pytest.fixture
def server_ground(shared_server_ground: Ground) -> Ground:
    return _emptied(shared_server_ground)
