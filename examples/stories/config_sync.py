"""The fifth story: two instances copy a configuration at once, and the target must never be a mixture.

The job copies all settings from their source to the target. The first instance has read version 1 and copied half of
it when it stands still (SIGSTOP) for longer than its ttl. The source goes on to version 2. The second instance takes
the run over and copies version 2. Then the first wakes up, and goes on with the second half of version 1. All the while
somebody looks at the target. The ledger is elsewhere: the target is a database that only receives effects.

*Unprotected*, with a statement per setting, the target ends as half of each version. *Protected* by
``run.transaction(target)`` all settings change at once or not at all, and those of whoever lost the run never do. Since
the first stood still inside its transaction, the server ends it after a ttl: nobody waits for it any longer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import stage
from sqlalchemy import Connection, text
from stage import Scene, until

from fencepost import App, Run

NAMES = ("currency", "limit", "rate", "region")
PUT = "UPDATE story_setting SET version = :version WHERE name = :name"
SEEN = "SELECT DISTINCT version FROM story_setting ORDER BY version"


# -- the application -------------------------------------------------------------------------------------------------


def read(scene: Scene) -> int:
    """Read the source, which is at version 2 as soon as somebody stands still in the middle of version 1."""
    version = 2 if scene.has_somebody_standing_still else 1
    scene.awaited(f"version {version} is at the source")
    return version


def copy(run: Run, scene: Scene) -> None:
    version = read(scene)
    if scene.is_protected:
        with run.transaction(scene.engine) as tx:
            put_all(run, scene, tx, version)
    else:
        with scene.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            put_all(run, scene, connection, version)


def put_all(run: Run, scene: Scene, connection: Connection, version: int) -> None:
    for number, name in enumerate(NAMES):
        if number == len(NAMES) // 2:
            scene.stand_still(run)
        connection.execute(text(PUT), {"version": version, "name": name})


def take_part(scene: Scene) -> None:
    app = stage.app_on(scene, stage.prefixed(scene.other_url))

    # However busy the machine is: whoever loses the run or fails for want of time is not the last.
    @app.job(name="sync", retries=10, backoff="100ms..1s", crash_limit=100)
    def job(run: Run) -> None:
        try:
            copy(run, scene)
        except Exception as error:
            scene.sign(f"attempt {run.attempt}", f"wrote nothing: {type(error).__name__}: {error}".splitlines()[0])
            raise
        scene.sign(f"attempt {run.attempt}", "went on to the end of what it had read")

    with app.running():
        scene.sign(f"{scene.name} is up")
        scene.awaited("the end")


# -- what happens to it ----------------------------------------------------------------------------------------------


class Onlooker:
    """Reads the target all the time, one statement after the other."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.saw: list[list[int]] = []

    def _look(self) -> None:
        while not self._may_end.wait(0.005):
            now = [version for (version,) in self._scene.ask(SEEN)]
            if not self.saw or self.saw[-1] != now:
                self.saw.append(now)

    @contextmanager
    def looking(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._may_end.set()
            self._thread.join()


def tell(scene: Scene) -> stage.Claims:
    scene.do(
        "CREATE TABLE story_setting (name VARCHAR(60) PRIMARY KEY, version BIGINT)",
        *(f"INSERT INTO story_setting (name, version) VALUES ('{name}', 0)" for name in NAMES),
    )
    stage.migrate(stage.prefixed(scene.other_url))
    if scene.is_protected:
        stage.install_effects(scene.effects_url)
    onlooker = Onlooker(scene)
    with (
        stage.instances(scene, "node-1", "node-2") as nodes,
        closing(stage.app_on(scene, stage.prefixed(scene.other_url))) as ledger,
        onlooker.looking(),
    ):
        _play(scene, ledger, nodes, onlooker)
    settings = scene.ask("SELECT name, version FROM story_setting ORDER BY name")
    scene.say("the target: " + ", ".join(f"{name} of version {version}" for name, version in settings))
    scene.say("whoever looked saw: " + ", ".join(" and ".join(f"v{n}" for n in each) for each in onlooker.saw))
    return {
        "the target is never a mixture": all(len(versions) == 1 for versions in onlooker.saw),
        "the target has the newest version": settings == [(name, 2) for name in NAMES],
    }


def _play(scene: Scene, ledger: App, nodes: dict[str, stage.Instance], onlooker: Onlooker) -> None:
    until(lambda: onlooker.saw, stage.DEADLINE_S, "somebody looks at the target")
    scene.sign("version 1 is at the source")
    ledger.enqueue("sync")
    name, attempt = scene.awaited("in the middle").split()
    first = nodes[name]
    second = next(node for node in nodes.values() if node is not first)
    first.pause()
    scene.say("has copied half of version 1, and stands still (SIGSTOP)", first.name)
    scene.sign("version 2 is at the source")
    until(lambda: ledger.operations.runs(states=["succeeded"]), stage.DEADLINE_S, "the run was taken over")
    scene.say("has taken over, and copied version 2", second.name)
    scene.sign("go on")
    first.resume()
    scene.say("wakes up (SIGCONT)", first.name)
    scene.say(scene.awaited(f"attempt {attempt}"), first.name)
    last = [version for (version,) in scene.ask(SEEN)]
    until(lambda: onlooker.saw[-1] == last, stage.DEADLINE_S, "the last state was seen")


if __name__ == "__main__":
    stage.main(__doc__, tell, take_part, has_other=True)
