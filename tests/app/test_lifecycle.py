"""Starting and stopping a process's part in the work."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost import App, Run, at, every
from fencepost.app import application
from fencepost.app.composing import doubts
from fencepost.core.events import Event, What
from fencepost.errors import ConfigurationError, LeaseLost, LedgerUnavailable, SchemaMismatch, StoreUnavailable
from fencepost.ledger import nodes
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.migrations import NEWEST
from fencepost.testing import until
from tests.app.surroundings import RUNTIME
from tests.children import in_child


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url, ttl="5s")
    yield app
    app.close()


def test_a_node_that_can_run_nothing_and_variables_that_mean_nothing_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_QUEUE", "mail")
    heard: list[Event] = []
    app = App(f"sqlite:///{tmp_path}/ledger.db", observers=[heard.append])
    with app.running():
        pass
    app.close()
    reasons = [str(event.reason) for event in heard if event.what is What.RUNNER_WARNING]
    assert any("no jobs" in reason for reason in reasons)
    assert any("did you mean 'FENCEPOST_QUEUES'?" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        (
            ["mial"],
            r"runs from mial alone, so it runs none of its jobs: .* queues default, mail \(did you mean 'mail'\?\)",
        ),
        (["xyz", "abc"], r"runs from xyz, abc alone, so it runs none of its jobs: .* queues default, mail; set it"),
        (["mail", "mial"], r"no job has the queue mial, from which this node takes runs: .* queues default, mail"),
        (["mail"], None),
        (None, None),
    ],
)
def test_queues_that_no_job_has_are_reported(tmp_path: Path, queues: list[str] | None, says: str | None) -> None:
    app = App(f"sqlite:///{tmp_path}/ledger.db", queues=queues)
    app.command("report", ["true"])
    app.command("send", ["true"], queue="mail")
    found = doubts(app)
    assert len(found) == (says is not None)
    if says is not None:
        assert re.search(says, found[0])


def state(app: App, run_id: int) -> str:
    return app.operations.run(run_id).state


def test_between_start_and_stop_this_process_executes_what_is_asked_for(app: App) -> None:
    @app.job
    def add(a: int, b: int = 2) -> int:
        return a + b

    @app.job
    async def triple(a: int) -> int:
        await asyncio.sleep(0)
        return 3 * a

    app.command("greet", ["sh", "-c", 'test "$FENCEPOST_TOKEN" -gt 0'])
    logging_before = logging.root.handlers[:], logging.root.level, logging.getLogger("fencepost").handlers[:]
    with app.running():
        assert app.is_running
        assert logging_before == (
            logging.root.handlers[:],
            logging.root.level,
            logging.getLogger("fencepost").handlers[:],
        )  # how an application logs is its own affair
        runs = [add.enqueue(1), triple.enqueue(a=2), app.enqueue("greet")]
        until(lambda: all(state(app, each.run_id) == "succeeded" for each in runs), 20, what="all have run")
        assert [app.operations.run(each.run_id).result for each in runs] == [3, 6, None]
        (node,) = app.operations.nodes()
        assert (node.name, node.is_living) == (app.node_name, True)
    assert not app.is_running
    assert not app.operations.nodes()[0].is_living
    left_over = add.enqueue(1)
    assert state(app, left_over.run_id) == "queued"


def test_a_ledger_that_is_refused_is_let_go_and_found_when_it_fits(url: str, ledger: Ledger) -> None:
    app, version = App(url), ledger.tables.name("version")
    opened: list[Ledger] = []

    def noting(*given: Any) -> Ledger:
        opened.append(open_ledger(*given))
        return opened[-1]

    ledger.write(lambda cursor: cursor.execute(f"UPDATE {version} SET version_num = '9999'"))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SchemaMismatch, match="newer Fencepost"):
        patch.setattr(application, "open_ledger", noting)
        _ = app.ledger
    assert [each.open_now() for each in opened] == [([], 0)]
    ledger.write(lambda cursor: cursor.execute(f"UPDATE {version} SET version_num = '{NEWEST}'"))
    assert nodes.nodes(app.ledger) == []
    app.close()


def test_an_instant_that_passed_a_moment_before_the_first_node_came_is_made_good_and_an_older_one_told_of(
    app: App,
) -> None:
    now = datetime.now(UTC)
    recent, older = now - timedelta(seconds=1), now - timedelta(hours=1)
    app.job(at([older, recent]), name="announce", grace="1m")(lambda: None)
    with app.running():
        until(lambda: app.operations.runs(states=["succeeded"]), 20, what="it has run")
    assert [
        each.became for each in (*app.operations.why("announce", recent), *app.operations.why("announce", older))
    ] == ["ran", "skipped"]


def test_schedules_of_the_code_run_by_themselves_with_a_fenced_transaction(app: App) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.job(every("1s"))
    def tick(run: Run) -> None:
        with run.transaction() as tx:
            tx.exec_driver_sql("SELECT 1")
        seen.append((run.due_at, run.window))

    with app.running():
        until(lambda: len(seen) >= 2, 20, what="two ticks")
    assert all(window.end == due_at for due_at, window in seen)
    assert all((window.end - window.start).total_seconds() == 1 for _, window in seen)
    assert len({due_at for due_at, _ in seen}) == len(seen)


def test_starting_and_stopping_twice_is_doing_it_once(app: App) -> None:
    app.start()
    app.start()
    assert len(app.operations.nodes()) == 1
    app.stop()
    app.stop()
    app.start()
    assert [node.is_living for node in app.operations.nodes()] == [True, False]


def test_a_stop_waits_for_what_runs_and_no_longer_than_its_grace(app: App) -> None:
    began, may_end = RUNTIME.event(), RUNTIME.event()

    @app.job
    def slow() -> str:
        began.set()
        may_end.wait(30)
        return "done"

    made = slow.enqueue()
    app.start()
    assert began.wait(20)
    stopping = RUNTIME.spawn("stop", lambda: app.stop(grace="20s"))
    until(lambda: not app.is_running, 30, what="it is being stopped")
    assert state(app, made.run_id) == "running"
    may_end.set()
    stopping.join(20)
    assert (state(app, made.run_id), app.operations.run(made.run_id).result) == ("succeeded", "done")


def test_a_run_that_is_cancelled_is_told_at_its_next_call(app: App) -> None:
    told: list[BaseException] = []
    began, never = RUNTIME.event(), RUNTIME.event()

    @app.job
    def patient(run: Run) -> None:
        began.set()
        try:
            while True:
                run.check()
                never.wait(0.01)  # the job's work: it asks now and then, as jobs do between two of their steps
        except BaseException as error:
            told.append(error)
            raise

    with app.running(grace="1s"):
        made = patient.enqueue()
        assert began.wait(20)
        assert app.operations.cancel(made.run_id, by="ann") == "requested"
        until(lambda: state(app, made.run_id) == "cancelled", 20, what="it is cancelled")
        until(lambda: told, 20, what="its thread, which nobody can end, asks once more")
    assert type(told[0]).__name__ == "Stopped"


async def use(app: App, work: Callable[[], Any]) -> Any:
    async with app.running():
        return await asyncio.to_thread(work)


def test_an_event_loop_can_start_it_too(app: App) -> None:
    @app.job
    async def fetch() -> int:
        return 1

    def work() -> None:
        made = fetch.enqueue()
        until(lambda: state(app, made.run_id) == "succeeded", 20, what="it has run")

    asyncio.run(use(app, work))
    assert not app.is_running


class TestForking:
    def test_a_child_of_a_started_process_is_not_started_and_does_not_disturb_it(self, app: App) -> None:
        ran: list[int] = []

        @app.job
        def note() -> None:
            ran.append(os.getpid())

        app.start()
        assert in_child(lambda: not app.is_running and (app.stop() is None))
        assert app.is_running
        note.enqueue()
        until(lambda: ran == [os.getpid()], 20, what="the parent goes on")
        assert len(app.operations.nodes()) == 1

    def test_a_child_of_a_started_process_can_be_started_as_a_node_of_its_own(self, app: App) -> None:
        app.start()

        def child() -> bool:
            try:
                with app.running():
                    return app.is_running and sum(node.is_living for node in app.operations.nodes()) == 2
            except (LedgerUnavailable, StoreUnavailable) as error:  # somebody was inside SQLite when it was forked
                return app.ledger.url.kind == "sqlite" and "forked in the middle of a call" in str(error)

        assert in_child(child)
        assert app.is_running
        assert sum(node.is_living for node in app.operations.nodes()) == 1

    def test_a_child_can_enqueue_and_can_be_started_itself(self, app: App) -> None:
        @app.job
        def note() -> int:
            return os.getpid()

        note.enqueue(key="before")  # so that there are connections to inherit
        names = {app.node_name}

        def child() -> bool:
            names.add(app.node_name)
            made = note.enqueue(key="child")
            with app.running():
                until(lambda: state(app, made.run_id) == "succeeded", 20, what="the child runs it")
            return len(names) == 2

        assert in_child(child)
        pids = {row.result for row in app.operations.runs()}
        assert str(os.getpid()) not in pids
        assert len(pids) == 1

    def test_a_fenced_transaction_works_on_both_sides_of_a_fork(self, app: App) -> None:
        @app.job
        def write(run: Run) -> None:
            with run.transaction() as tx:
                tx.exec_driver_sql("SELECT 1")

        def run_one() -> bool:
            made = write.enqueue()
            with app.running():
                until(lambda: state(app, made.run_id) == "succeeded", 20, what="it has run")
            return True

        assert run_one()
        assert in_child(run_one)
        assert run_one()


@pytest.mark.parametrize(
    ("module", "attribute"), [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")]
)
def test_green_threads_are_refused(tmp_path: Path, monkeypatch: Any, module: str, attribute: str) -> None:
    patched = types.ModuleType(module)
    setattr(patched, attribute, lambda name: True)
    monkeypatch.setitem(sys.modules, module, patched)
    app = App(f"sqlite:///{tmp_path}/app.db")
    with pytest.raises(ConfigurationError, match="needs real threads"):
        app.start()
    assert not app.is_running


def test_a_ledger_that_is_not_there_is_said_at_the_start() -> None:
    app = App("postgresql://nobody@127.0.0.1:1/nothing?call_timeout=1s")
    app.job(name="x")(lambda: None)
    with pytest.raises(Exception, match="PostgreSQL") as refused:
        app.start()
    assert "nobody" not in type(refused.value).__name__
    assert not app.is_running


def test_a_process_that_ends_in_good_order_leaves(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        from fencepost import App
        app = App("sqlite:///{tmp_path}/app.db")
        app.job(name="x")(lambda: None)
        app.start()
    """)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    app = App(f"sqlite:///{tmp_path}/app.db")
    (node,) = app.operations.nodes()
    assert (node.left_at is not None, node.dead_at) == (True, None)
    app.close()


def test_gunicorn_workers_with_preload_run_each_tick_once(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text(
        textwrap.dedent(f"""
        from fencepost import App, every

        jobs = App("sqlite:///{tmp_path}/app.db", ttl="5s")

        @jobs.job(every("1s"))
        def tick(run):
            return run.node

        tick.enqueue(key="before the fork")  # connections that the workers inherit, and must not use

        def app(environ, start_response):
            start_response("200 OK", [])
            return [b""]

        def post_fork(server, worker):
            jobs.start()
        """)
    )
    config = tmp_path / "gunicorn.conf.py"
    config.write_text(
        "import site_jobs\npreload_app = True\nworkers = 4\nbind = 'unix:gunicorn.sock'\n"
        "control_socket = 'gunicorn.ctl'\npost_fork = site_jobs.post_fork\n"
    )
    (tmp_path / "site.py").rename(tmp_path / "site_jobs.py")
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-c", str(config), "site_jobs:app"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    app = App(f"sqlite:///{tmp_path}/app.db")
    try:
        until((tmp_path / "app.db").exists, 30, what="the application is loaded")
        until(lambda: sum(node.is_living for node in app.operations.nodes()) == 4, 30, what="four nodes")
        since = app.operations.now()

        def ticks() -> list[Any]:
            rows = app.operations.runs(states=["succeeded"], limit=1000)
            return [row for row in rows if row.due_at is not None and row.due_at > since]

        until(lambda: len(ticks()) >= 5, 30, what="five ticks")
        dues = [row.due_at for row in ticks()]
        assert len(set(dues)) == len(dues)
        assert {len(app.operations.attempts(row.id)) for row in ticks()} == {1}
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            _, said = server.communicate(timeout=30)
        finally:
            server.kill()
            server.communicate()
            app.close()
    assert b"Traceback" not in said, said.decode()


def test_what_loses_its_place_in_the_ledger_cannot_write_any_more(app: App) -> None:
    """The whole way: a job whose run is given to somebody else while it executes."""
    began, may_go_on = RUNTIME.event(), RUNTIME.event()
    ended: list[BaseException] = []

    @app.job
    def zombie(run: Run) -> None:
        began.set()
        may_go_on.wait(30)
        try:
            with run.transaction() as tx:
                tx.exec_driver_sql("SELECT 1")
        except BaseException as error:
            ended.append(error)
            raise

    with app.running(grace="1s"):
        made = zombie.enqueue()
        assert began.wait(20)
        run = app.ledger.tables.run
        change = run.update().where(run.c.id == made.run_id).values(token=run.c.token + 1)
        app.ledger.write(lambda cursor: app.ledger.change(cursor, change))
        may_go_on.set()
        until(lambda: bool(ended), 20, what="it is refused")
    assert isinstance(ended[0], LeaseLost)
