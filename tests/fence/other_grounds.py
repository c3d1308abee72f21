"""Fixtures: another database than the ledger's, with the tables of effects, on each server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fence.grounds import EFFECTS, Ground
from tests.fence.test_transactions import KINDS, urls
from tests.ledger.conftest import mariadb, postgres

__all__ = ["ground", "mariadb", "postgres", "server_ground", "shared_ground", "shared_server_ground"]


@pytest.fixture(scope="module", params=KINDS)
def shared_ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Another database than the ledger's, with the tables of effects."""
    ground = Ground(*urls(request.param, "other", request, tmp_path_factory.mktemp("ground")))
    yield ground
    ground.close()


@pytest.fixture
def ground(shared_ground: Ground) -> Ground:
    shared_ground.change(f"DELETE FROM {EFFECTS}")
    shared_ground.change(f"DELETE FROM {shared_ground.fence_table}")
    return shared_ground


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def shared_server_ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(*urls(request.param, "other", request, tmp_path_factory.mktemp("ground")))
    yield ground
    ground.close()


@pytest.fixture
def server_ground(shared_server_ground: Ground) -> Ground:
    shared_server_ground.change(f"DELETE FROM {EFFECTS}")
    shared_server_ground.change(f"DELETE FROM {shared_server_ground.fence_table}")
    return shared_server_ground
