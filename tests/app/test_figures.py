"""Figures go with their job: a new name takes them along, and a job that is forgotten leaves none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost import App
from fencepost.app.composing import publish
from fencepost.core.figures import HOUR_US, hour_of
from fencepost.errors import NoSuchJob
from fencepost.ledger.figures import MOST_ROWS, FigureRow, figures_since, put
from fencepost.ledger.nodes import NewNode, join


@pytest.fixture
def kind() -> str:
    return "sqlite"  # the statements are tested on each database in tests/ledger/test_figures.py


@pytest.fixture
def app(ledger_url: str) -> Iterator[App]:
    made = App(ledger_url)
    made.job(name="nightly", type="manual")(_work)
    publish(made)
    connection, hour = made.ledger.connect("figures"), hour_of(made.ledger.now_us())
    names = ("nightly", "nightly/part", "nightly-eu")
    put(connection, [FigureRow(name, hour, "a", '{"succeeded":2}', '{"70":2}') for name in names])
    connection.rest()
    yield made
    made.close()


def _work() -> None: ...


def left(app: App, *jobs: str) -> set[str]:
    return {row.job for row in figures_since(app.ledger, jobs, 0)[0]}


def test_a_job_that_is_renamed_takes_its_figures_along_and_its_parts(app: App) -> None:
    app.operations.rename_job("nightly", "settle", by="ann")
    assert left(app, "nightly", "nightly/part", "nightly-eu", "settle", "settle/part") == {
        "settle",
        "settle/part",
        "nightly-eu",
    }
    assert app.operations.figures("settle")[0].outcomes.succeeded == 2
    with pytest.raises(NoSuchJob, match="settle"):
        app.operations.figures("nightly")


def test_a_job_that_is_forgotten_leaves_none(app: App) -> None:
    app.operations.forget_job("nightly", by="ann", reason="gone")
    assert left(app, "nightly", "nightly/part", "nightly-eu") == {"nightly/part", "nightly-eu"}


def test_nodes_that_do_not_count_are_counted(app: App) -> None:
    for number, version in enumerate(("0.1.0/0004/0002", "0.1.0/0005/0002", "0.2.0/0017/0002", "0.0.9")):
        node = f"n{number}"
        join(app.ledger, NewNode(node, node, "g", 1, 0, version, 1, ("default",), ("nightly",)))
    assert app.operations.figures("nightly")[0].not_counting == 2


def test_what_is_too_much_to_read_is_cut_at_a_whole_hour_and_says_since_when_it_is_complete(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert figures_since.__kwdefaults__["limit"] == MOST_ROWS
    monkeypatch.setitem(figures_since.__kwdefaults__, "limit", 6)
    connection, hour = app.ledger.connect("figures"), hour_of(app.ledger.now_us())
    rows = [(hour - ago * HOUR_US, node) for ago in (1, 2, 3) for node in "ab"]
    put(connection, [FigureRow("nightly", at, node, '{"failed":1}', "{}") for at, node in rows])
    connection.rest()
    [found] = app.operations.figures("nightly")
    assert (found.outcomes.succeeded, found.outcomes.failed) == (2, 4)
    assert found.since_at == found.hours[0].at
    assert [each.outcomes.failed for each in found.hours] == [2, 2, 0]


def test_hours_that_are_to_come_are_not_in_the_sum(app: App) -> None:
    connection, hour = app.ledger.connect("figures"), hour_of(app.ledger.now_us())
    put(connection, [FigureRow("nightly", hour + 48 * HOUR_US, "a", '{"succeeded":100}', "{}")])
    connection.rest()
    [found] = app.operations.figures("nightly")
    assert (found.outcomes.succeeded, len(found.hours)) == (2, 1)
    assert all(each.at <= found.until_at for each in found.hours)
