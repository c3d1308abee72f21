"""An application with a few jobs, served by REST to principals with different roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import App, cron, every
from fencepost.access import Access
from fencepost.app.composing import publish
from fencepost.core.rights import Scope
from fencepost.web import web
from tests.api.asking import Api


@pytest.fixture
def kind() -> str:
    return "sqlite"  # the statements are tested on each database in tests/access and tests/ledger


def settle(account: int = 7, mode: str = "real") -> None:
    """Settle what is open."""


@pytest.fixture
def app(ledger_url: str) -> Iterator[App]:
    made = App(ledger_url)
    made.job(cron("30 2 * * *", tz="Europe/Berlin"), name="settle", timeout="10m")(settle)
    made.job(every("1h"), name="report/part")(settle)
    made.job(name="secret-of-others")(settle)
    publish(made)
    yield made
    made.close()


@pytest.fixture
def pages(app: App) -> Any:
    return web(app)


@pytest.fixture
def token(app: App) -> Callable[..., str]:
    """Make an API token with a role on these jobs."""
    access = Access(app.ledger, Scope.direct("root"))

    def make(role: str = "admin", *jobs: str) -> str:
        return access.add_api_token("test", role, expires_in="1d", jobs=jobs or ("",)).secret

    return make


@pytest.fixture
def api(pages: Any, token: Callable[..., str]) -> Api:
    """Requests of an admin."""
    return Api(pages, token())


@pytest.fixture
def limited(pages: Any, token: Callable[..., str]) -> Api:
    """Requests of an operator of two of the three jobs."""
    return Api(pages, token("operator", "settle", "report/part"))
