"""``app.start(processes=True)``: jobs in worker processes, which find the application by its name."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import App
from fencepost.app.worker_processes import Imported, default_workers, importable
from fencepost.core.events import Event, What
from fencepost.engine.loading import ThisProcess
from fencepost.errors import ConfigurationError
from fencepost.testing import until
from testbed.keeper import is_alive

SHOP = """
import os
from fencepost import App

app = App("sqlite:///{folder}/ledger.db", ttl="10s", slots=1)

@app.job
def where() -> int:
    return os.getpid()
"""
MORE = """
import os
from fencepost.bulk import iterable
from shop_with_workers import app

@app.job
async def beside() -> int:
    return os.getpid()

def items(after):
    yield from ((number, number) for number in (1, 2) if after is None or number > after)

@app.bulk(read=iterable(items))
def much(tx, items): ...
"""
Make = Callable[..., Any]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes modules that can be imported, here and in processes that are started here."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def make(name: str, text: str) -> Any:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text).replace("{folder}", str(tmp_path)))
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        found = sys.modules.pop(name, None)
        if hasattr(found, "app"):
            found.app.close()


def ended(app: App, *run_ids: int) -> list[Any]:
    until(lambda: all(app.operations.run(each).state == "succeeded" for each in run_ids), 40, what="they succeed")
    return [app.operations.run(each) for each in run_ids]


def test_runs_execute_in_another_process_and_the_node_leaves_in_good_order(module: Make) -> None:
    app = module("shop_with_workers", SHOP).app
    module("more_of_the_shop", MORE)
    app.command("greet", ["true"])
    with app.running(processes=True):
        assert app.is_running
        runs = ended(app, *(app.enqueue(job).run_id for job in ("where", "beside", "greet", "much")))
        [worker] = {run.result for run in runs[:2]}
        assert worker != os.getpid()
        assert is_alive(worker)
        [node] = app.operations.nodes(living=True)
        assert (node.name, node.slots) == (app.node_name, 1)
    assert not app.is_running
    assert [node.state for node in app.operations.nodes()] == ["left"]
    until(lambda: not is_alive(worker), 10, what="the worker is gone")


def test_it_can_be_started_and_stopped_and_started_on_threads_again(module: Make) -> None:
    app = module("shop_with_workers", SHOP).app

    async def one() -> int:
        async with app.running(processes=True):
            made = await asyncio.to_thread(app.enqueue, "where")
            [run] = await asyncio.to_thread(ended, app, made.run_id)
            return int(run.result)

    assert asyncio.run(one()) != os.getpid()
    with app.running():
        assert ended(app, app.enqueue("where").run_id)[0].result == os.getpid()


FORKING = """
import os, signal, sys, time
from shop_that_lasts import app

if __name__ == "__main__":
    app.start(processes=True)
    app.enqueue("lasts")
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    child = os.fork()
    if child == 0:
        time.sleep(600)
    with open(sys.argv[2], "w") as file:
        file.write(str(child))
    os.kill(os.getpid(), signal.SIGKILL)
"""
LASTING = """
import os, time
from fencepost import App

app = App("sqlite:///{folder}/ledger.db", ttl="30s", slots=1)

@app.job(effects="fenced", timeout="1h")
def lasts() -> None:
    with open("{folder}/worker.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("{folder}/worker.new", "{folder}/worker")
    time.sleep(600)
"""


def test_workers_end_with_the_process_that_started_them_though_a_child_of_it_lives(tmp_path: Path) -> None:
    """The child has inherited the pipes whose end tells a guardian that its supervisor is gone."""
    (tmp_path / "shop_that_lasts.py").write_text(LASTING.replace("{folder}", str(tmp_path)))
    (tmp_path / "forking.py").write_text(FORKING)
    command = [sys.executable, "forking.py", str(tmp_path / "worker"), str(tmp_path / "child")]
    subprocess.run(command, cwd=tmp_path, stderr=subprocess.DEVNULL, check=False, timeout=120)
    child = int((tmp_path / "child").read_text())
    try:
        worker = int((tmp_path / "worker").read_text())
        until(lambda: not is_alive(worker), 10, what="the worker is gone, long before its lease ends")
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_workers_import_what_their_supervisor_has_not_what_lies_in_the_folder(
    module: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = module("shop_with_workers", SHOP).app
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shop_with_workers.py").write_text("raise RuntimeError('another one of that name')")
    monkeypatch.chdir(elsewhere)
    with app.running(processes=True):
        ended(app, app.enqueue("where").run_id)


TASKS = """
import os

def cleanup() -> int:
    return os.getpid()
"""
REGISTER = """
import tasks_of_the_shop
from shop_with_workers import app

app.job(name="cleanup")(tasks_of_the_shop.cleanup)
"""


def test_workers_import_the_module_that_declares_a_job_though_its_function_is_from_another(module: Make) -> None:
    app = module("shop_with_workers", SHOP).app
    module("tasks_of_the_shop", TASKS)
    module("registering_the_tasks", REGISTER)
    found = importable(app)
    assert "registering_the_tasks" in (found.spec.partition(":")[0], *found.modules)
    with app.running(processes=True):
        [run] = ended(app, app.enqueue("cleanup").run_id)
    assert run.result != os.getpid()


def test_of_the_names_it_has_the_one_that_the_settings_say_comes_first(
    module: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = module("shop_with_workers", SHOP).app
    module("front_of_the_shop", "from shop_with_workers import app as front")
    assert importable(app) == Imported("shop_with_workers:app")
    module("more_of_the_shop", MORE)
    assert importable(app) == Imported("more_of_the_shop:app", ("shop_with_workers",))  # it has two of three jobs
    monkeypatch.setattr(app, "settings", _with_app(app, "front_of_the_shop:front"))
    assert importable(app) == Imported("front_of_the_shop:front", ("more_of_the_shop", "shop_with_workers"))


def _with_app(app: App, spec: str) -> Any:
    from dataclasses import replace

    return replace(app.settings, app=spec)


def test_without_a_number_there_are_as_many_workers_as_suit_the_machine(module: Make) -> None:
    app = module("shop_with_workers", SHOP.replace(", slots=1", "")).app
    with app.running(processes=True):
        assert [node.slots for node in app.operations.nodes()] == [default_workers()]


def test_an_application_that_no_module_has_is_refused_and_nothing_is_started(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/ledger.db")
    app.job(name="nothing")(lambda: None)
    with pytest.raises(ConfigurationError, match=r"no module that can be imported has it.*from shop\.jobs import app"):
        app.start(processes=True)
    assert not app.is_running
    assert not (tmp_path / "ledger.db").exists()
    app.close()


def test_programs_alone_need_no_name(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/ledger.db", ttl="10s")
    app.command("greet", ["true"])
    with app.running(processes=True):
        ended(app, app.enqueue("greet").run_id)
    app.close()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("from fencepost import App\napp = App()\n@app.job\ndef one(): ...\n", "no module that can be imported has it"),
        ("from shop_with_workers import app\n@app.job\ndef one(): ...\n", "job 'one' is declared in a script"),
    ],
)
def test_a_script_is_told_what_to_do(module: Make, tmp_path: Path, script: str, says: str) -> None:
    module("shop_with_workers", SHOP)
    (tmp_path / "script.py").write_text(f"{script}app.start(processes=True)\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    sentence = done.stderr.splitlines()[-1]
    assert says in sentence
    assert "from shop.jobs import app" in sentence
    assert done.returncode == 1


def test_a_worker_that_would_become_a_node_itself_says_so(module: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    app = module("shop_with_workers", SHOP).app
    with monkeypatch.context() as patch:
        patch.setattr(ThisProcess, "is_worker", True)
        with pytest.raises(ConfigurationError, match="in a worker process, while it imported the application"):
            app.start(processes=True)
    app.start(processes=True)
    app.stop()


def test_a_module_that_starts_a_node_when_it_is_imported_is_told_of(module: Make) -> None:
    told: list[Event] = []
    listening = SHOP.replace("slots=1)", "slots=1, observers=[lambda event: told(event)])\ntold = print\n")
    shop = module("shop_with_workers", listening)
    shop.told = told.append
    path = Path(shop.__file__)
    path.write_text(path.read_text() + "\napp.start(processes=True)\n")
    shop.app.start(processes=True)
    try:
        until(
            lambda: [e for e in told if e.what is What.RUNNER_WARNING and "if __name__" in str(e.reason)],
            30,
            what="the workers say why they cannot be loaded",
        )
    finally:
        shop.app.stop()
