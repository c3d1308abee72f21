"""``runs --follow``: every run is shown, also one whose number is older than what was shown before it."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from fencepost.app.composing import publish
from fencepost.app.operations import Operations
from fencepost.cli.following import Following
from fencepost.core.rights import Scope
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.threaded import ThreadedRuntime
from testbed.postgres import Postgres
from tests.access.scene import set_run
from tests.cli.inside import shop


class Over(Exception):
    """There is nothing more to follow."""


class Stepping(ThreadedRuntime):
    """Does not sleep: what happens meanwhile happens."""

    steps: Iterator[Callable[[], None]] = iter(())

    def sleep(self, seconds: float) -> None:
        step = next(self.steps, None)
        if step is None:
            raise Over
        step()


def test_a_run_that_is_committed_after_later_ones_is_shown_below_a_head(
    postgres: Postgres, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    book = open_ledger(postgres_url, Stepping())
    migrate(book)
    app = shop(postgres_url)
    publish(app)
    shown: list[int] = []
    with psycopg.connect(postgres.url) as slow:

        def enqueue_two() -> None:
            shown.append(app.enqueue("add", params={"a": 1}, tx=slow).run_id)
            shown.append(app.enqueue("add", params={"a": 2}).run_id)

        book.runtime.steps = iter([enqueue_two, lambda: None, slow.commit, lambda: None])  # type: ignore[attr-defined]
        with pytest.raises(Over):
            Following(Operations(book, Scope.direct()), {"job": "add"}, as_json=False).run(50)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["id", "job", "state"]
    early, late = shown
    assert early < late
    assert [int(line.split()[0]) for line in lines] == [late, early]
    assert {line.index("–") for line in lines} == {head.index("due")}
    book.close()
    app.close()


def test_run_of_a_node_is_shown_once_that_node_has_it(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = shop(sqlite_url)
    publish(app)
    first, other = (app.enqueue("add", params={"a": each}).run_id for each in (1, 2))
    book = open_ledger(sqlite_url, Stepping())

    def claimed() -> None:
        set_run(app, first, state="running", node="n1", attempts=1)
        set_run(app, other, state="running", node="n2", attempts=1)

    book.runtime.steps = iter([claimed, lambda: None])  # type: ignore[attr-defined]
    with pytest.raises(Over):
        Following(Operations(book, Scope.direct()), {"node": "n1"}, as_json=False).run(50)
    _, *lines = capsys.readouterr().out.splitlines()
    assert [int(line.split()[0]) for line in lines] == [first]
    book.close()
    app.close()
