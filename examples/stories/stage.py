"""What the five stories share: a database, instances of an application that can be paused, and the count at the end.

Each story is a program of its own, and plays on a real database::

    python examples/stories/paused_settlement.py                    # on a private PostgreSQL, as it should be
    python examples/stories/paused_settlement.py --unprotected      # the same without protection: it goes wrong
    python examples/stories/paused_settlement.py --on mariadb
    python examples/stories/paused_settlement.py --url mysql://root@127.0.0.1/test

It ends with status 0 if everything it claims was found true in the database, with 3 if not. Tables begin with
``story_`` and are made anew each time. Nothing here waits for a time to pass: whoever waits, waits for a file, a row or
a barrier.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Engine, text

from fencepost import App, Run, every
from fencepost.ledger import migrations
from fencepost.ledger.ledger import open_ledger
from fencepost.testing import until
from fencepost.threaded import ThreadedRuntime
from testbed import keeper

TTL = "3s"
PREFIX = "story_"
DEADLINE_S = 60.0
NOT_SO = 3  # and not 1, with which a program ends that could not be told at all

Claims = Mapping[str, bool]


@dataclass(frozen=True)
class Scene:
    """Where a story plays: the database of the effects, another server, and a folder for signs between processes."""

    url: str
    other_url: str
    folder: Path
    is_protected: bool
    how: str = ""
    name: str = "director"

    @cached_property
    def engine(self) -> Engine:
        """Connections of the application to the database of the effects."""
        return engine_for(self.url)

    @property
    def ledger_url(self) -> str:
        """A ledger in the same database as the effects."""
        return prefixed(self.url)

    @property
    def effects_url(self) -> str:
        """The same place, for fences that belong to a ledger or a lock store elsewhere."""
        return prefixed(self.url)

    # -- what is told, and what others wait for ----------------------------------------------------------------------

    def say(self, what: str, who: str = "") -> None:
        print(f"  {who:12} {what}" if who else f"\n  {what}", flush=True)

    def sign(self, name: str, said: str = "") -> None:
        """Leave a sign for other processes."""
        new = self.folder / f".{name}.{os.getpid()}"
        new.write_text(said or "yes")
        new.rename(self.folder / name)

    def stand_still(self, run: Run) -> None:
        """The first attempt that comes here stays until it may go on; this is where the director pauses it."""
        try:
            self._standing_still.mkdir()
        except FileExistsError:
            return
        self.sign("in the middle", f"{self.name} {run.attempt}")
        self.awaited("go on")

    @property
    def has_somebody_standing_still(self) -> bool:
        return self._standing_still.exists()

    @property
    def _standing_still(self) -> Path:
        return self.folder / "somebody stands still"

    def awaited(self, name: str) -> str:
        """Wait for a sign, and read it."""
        path = self.folder / name
        until(path.exists, DEADLINE_S, f"{name!r} was said")
        return path.read_text()

    # -- SQL ---------------------------------------------------------------------------------------------------------

    def ask(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(sql), values)]

    def do(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))


def engine_for(url: str) -> Engine:
    scheme, rest = url.split("://", 1)
    driver = "postgresql+psycopg" if scheme.startswith("postgres") else "mysql+pymysql"
    return sqlalchemy.create_engine(f"{driver}://{rest}")


def prefixed(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}prefix={PREFIX}"


def app_on(scene: Scene, ledger_url: str, *, ttl: str = TTL) -> App:
    return App(ledger_url, name=scene.name, ttl=ttl, slots=4)


# -- the director's part ---------------------------------------------------------------------------------------------


def clear(engine: Engine) -> None:
    """Remove what an earlier telling has left."""
    with engine.begin() as connection:
        here = "current_schema()" if engine.dialect.name == "postgresql" else "database()"
        sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema = {here}"
        tables = [row[0] for row in connection.execute(text(sql)) if row[0].startswith(PREFIX)]
        if tables:
            connection.execute(text(f"DROP TABLE {', '.join(tables)}"))


def migrate(url: str) -> None:
    """What ``fencepost migrate --ledger URL`` does."""
    ledger = open_ledger(url, ThreadedRuntime())
    migrations.migrate(ledger)
    ledger.close()


def install_effects(url: str) -> None:
    """Let the database of the effects be fenced: ``fencepost effects install URL``."""
    command = [str(Path(sys.executable).parent / "fencepost"), "effects", "install", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr}")


def make_due(app: App, job: str, params: Mapping[str, Any] | None = None) -> None:
    """Put a job that the nodes know on a schedule of every five minutes, of which the first come in a moment."""

    def is_due_soon() -> bool:
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        entry = app.schedules.put(job, job, every("5m", start=soon.isoformat()), params=params)
        return entry.next_due_at is not None and entry.next_due_at < soon + timedelta(seconds=1)  # else that took long

    until(is_due_soon, DEADLINE_S, f"{job!r} is due in a moment")


class Instance:
    """One instance of the application: this very program in a process of its own."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.name = name
        self._log = scene.folder / f"{name}.log"
        variables = {
            "STORY_INSTANCE": name,
            "STORY_URL": scene.url,
            "STORY_OTHER_URL": scene.other_url,
            "STORY_FOLDER": str(scene.folder),
            "STORY_PROTECTED": "yes" if scene.is_protected else "",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                keeper.announced([sys.executable, sys.argv[0]]),
                stdin=keeper.pipe(),
                stdout=log,
                stderr=log,
                env={**os.environ, **variables},
            )

    def pause(self) -> None:
        """SIGSTOP: not one of its threads goes on."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        keeper.forget(self._process.pid)

    @property
    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def instances(scene: Scene, *names: str) -> Iterator[dict[str, Instance]]:
    """Start so many instances, and wait until all of them take part."""
    started = {name: Instance(scene, name) for name in names}
    try:
        for name in names:
            scene.awaited(f"{name} is up")
        yield started
    except BaseException:
        for instance in started.values():
            print(f"-- {instance.name}\n{instance.log}", file=sys.stderr)
        raise
    finally:
        for instance in started.values():
            instance.end()


# -- from the command line -------------------------------------------------------------------------------------------


def main(
    story: str | None,
    tell: Callable[[Scene], Claims],
    take_part: Callable[[Scene], None] | None = None,
    *,
    ways: tuple[str, ...] = (),
    has_other: bool = False,
) -> None:
    """Tell the story, or be one of its instances.

    `ways` are the protections to choose from, the first by default; with `has_other` there is a second server.
    """
    if take_part is not None and "STORY_INSTANCE" in os.environ:
        logging.basicConfig()
        take_part(_instance_scene())
        return
    logging.getLogger("fencepost").setLevel(logging.CRITICAL)  # what goes wrong on purpose is told by the story
    options = _options(story, ways)
    claims = _told(story, tell, options, has_other=has_other)
    print()
    for claim, holds in claims.items():
        print(f"  {'✓' if holds else '✗ not so:'} {claim}")
    sys.exit(0 if all(claims.values()) else NOT_SO)


def _told(
    story: str | None, tell: Callable[[Scene], Claims], options: argparse.Namespace, *, has_other: bool
) -> Claims:
    with ExitStack() as stack:
        scene = _scene(options, stack, has_other=has_other)
        for url in {scene.url, scene.other_url} - {""}:
            engine = engine_for(url)
            clear(engine)
            engine.dispose()
        stack.callback(scene.engine.dispose)
        print(f"{_title(story)}\n{'as it should be' if scene.is_protected else 'UNPROTECTED'}, on {scene.engine.name}")
        return tell(scene)


def _title(story: str | None) -> str:
    return (story or "").split("\n\n")[0].strip()


def _options(story: str | None, ways: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=_title(story))
    parser.add_argument("--unprotected", action="store_true", help="leave the protection out, and see it go wrong")
    parser.add_argument("--url", help="postgresql://… or mysql://…: where the effects land; else a private server")
    parser.add_argument("--on", choices=("postgresql", "mariadb"), default="postgresql", help="which private server")
    parser.add_argument("--other", help="where the ledger or lock store is, if the story wants it elsewhere")
    parser.add_argument("--how", choices=ways or ("",), default=ways[0] if ways else "", help="which protection")
    return parser.parse_args()


def _scene(options: argparse.Namespace, stack: ExitStack, *, has_other: bool) -> Scene:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-story-"))
    other = options.other or (stack.enter_context(_server("postgresql")).url if has_other else "")
    return Scene(
        url=options.url or stack.enter_context(_server(options.on)).url,
        other_url=other,
        folder=Path(folder),
        is_protected=not options.unprotected,
        how=options.how,
    )


def _server(kind: str) -> Any:
    if kind == "postgresql":
        from testbed.postgres import Postgres

        return Postgres()
    from testbed.mariadb import MariaDB

    return MariaDB()


def _instance_scene() -> Scene:
    env = os.environ
    return Scene(
        url=env["STORY_URL"],
        other_url=env["STORY_OTHER_URL"],
        folder=Path(env["STORY_FOLDER"]),
        is_protected=bool(env["STORY_PROTECTED"]),
        name=env["STORY_INSTANCE"],
    )
