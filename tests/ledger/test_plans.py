"""What the hot calls cost does not depend on what the ledger holds, nor on what the planner believes that it holds.

Nothing is timed: the databases count their own work. A call is made on a ledger that holds little and on one that holds
much, and must not do more than half as much again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import pytest

from fencepost.core.retry import Rerun
from fencepost.core.runs import Requested
from fencepost.ledger.claiming import keys_wanted, mine
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import cancels, look
from fencepost.ledger.planning import SchedulePlan, plan
from fencepost.ledger.promoting import promote_stranded
from fencepost.ledger.reaping import reap
from fencepost.ledger.search_keys import ids_with
from testbed.postgres import Postgres
from tests.ledger.scene import HORIZON_US, HOUR_US, Scene, ending, failed, tick
from tests.ledger.test_planning import add_schedule, every_minute
from tests.ledger.work_meter import OnPostgres, metered

BATCH = 50
LITTLE, MUCH = 300, 5_000

Call = Callable[[Scene], object]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server on which nobody analyzes but these tests: what the planner believes is theirs to say."""
    with Postgres(settings={"fsync": "off", "autovacuum": "off"}) as server:
        yield server


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


# -- what the ledger holds


NUMBERS = {
    "postgresql": "generate_series(1, {}) AS n(n)",
    "mysql": "(SELECT seq AS n FROM seq_1_to_{}) AS n",
    "sqlite": "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s) AS n",
}
RUN = {
    **dict.fromkeys(("attempts", "ticks"), "1"),
    **dict.fromkeys(("priority", "failures", "crashes", "generation"), "0"),
    **dict.fromkeys(("created_at", "available_at", "started_at", "ended_at"), "5"),
    "type": "'manual'",
    "params": "'{{}}'",
    "params_hash": "''",
    "queue": "'default'",
    "token": "n.n",
}


def fill(scene: Scene, count: int) -> None:
    """Add finished runs with their attempts, keys that were used, and schedules that are due in years."""
    for table in ("exclusive", "schedule"):
        scene.change(f"DELETE FROM {{{table}}}")
    base = scene.last_id()
    add_runs(scene, count)
    attempt = {"run_id": f"n.n + {base}", "number": "1", "token": "n.n", "ended_at": "7", "outcome": "'succeeded'"}
    insert_many(scene, "attempt", attempt, count)
    insert_many(scene, "exclusive", {"{key}": _numbered(scene, "used"), "token": "n.n"}, count)
    schedule = {
        **dict.fromkeys(("spec", "params"), "'{{}}'"),
        **dict.fromkeys(("generation", "planned_through", "created_at", "updated_at"), "0"),
        "id": _numbered(scene, "far"),
        "job": "'job'",
        "origin": "'code'",
        "next_due_at": f"{scene.now_us() + 1000 * HOUR_US} + n.n",
    }
    insert_many(scene, "schedule", schedule, count)


def add_runs(scene: Scene, count: int, *, job: str = "job", state: str = "succeeded", node: str = "node") -> None:
    row = RUN | {"job": f"'{job}'", "state": f"'{state}'", "node": f"'{node}'", "id": f"n.n + {scene.last_id()}"}
    insert_many(scene, "run", row, count)
    if scene.ledger.dialect.name == "postgresql":
        scene.rows("SELECT setval(pg_get_serial_sequence('{run}', 'id'), (SELECT max(id) FROM {run}))")


def insert_many(scene: Scene, table: str, row: dict[str, str], count: int) -> None:
    source = NUMBERS[scene.ledger.dialect.name].format(count)
    scene.change(f"INSERT INTO {{{table}}} ({', '.join(row)}) SELECT {', '.join(row.values())} FROM {source}")


def _numbered(scene: Scene, word: str) -> str:
    return f"('{word}' || n.n)" if scene.ledger.dialect.name == "sqlite" else f"concat('{word}', n.n)"


def analyze(scene: Scene) -> None:
    """Let the database look at what it holds now, and believe in it from then on."""
    word = "ANALYZE TABLE" if scene.ledger.dialect.name == "mysql" else "ANALYZE"
    with scene.connection.autocommit() as cursor:
        for table in ("run", "attempt", "exclusive", "schedule", "job", "node"):
            cursor.execute(f"{word} {scene.ledger.tables.name(table)}")
            if cursor.description:
                cursor.fetchall()


# -- the calls; each makes what it needs, is metered, and leaves nothing behind


def queue(scene: Scene, count: int = BATCH, **wishes) -> None:
    scene.add(*[Requested("job", "manual", **wishes)] * count)


def _claim_free(scene: Scene) -> Call:
    queue(scene)
    return lambda scene: scene.claim(limit=BATCH)


def _claim_nothing(scene: Scene) -> Call:
    queue(scene, 5, available_at_us=scene.now_us() + 1_900_000)
    return lambda scene: scene.claim(limit=BATCH)


def _claim_keyed(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n % 20 + 1}") for n in range(BATCH)))
    return lambda scene: scene.claim(limit=BATCH)


def _finish_plain(scene: Scene) -> Call:
    queue(scene)
    claims = scene.claim(limit=BATCH).claims
    return lambda scene: scene.finish(*map(ending, claims))


def _finish_all_kinds(scene: Scene) -> Call:
    queue(scene)
    claims = scene.claim(limit=BATCH).claims
    return lambda scene: scene.finish(*(failed(each, "queued", error="no") for each in claims))


def _finish_keyed(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n % 20 + 1}") for n in range(BATCH)))
    claims = scene.claim(limit=BATCH).claims
    return lambda scene: scene.finish(*map(ending, claims))


def _finish_again(scene: Scene) -> Call:
    queue(scene)
    claims = scene.claim(limit=BATCH).claims
    scene.finish(*map(ending, claims))
    return lambda scene: scene.finish(*map(ending, claims))


def _plan(scene: Scene) -> Call:
    now_us = scene.now_us()
    for number in range(10):
        scene.change("DELETE FROM {schedule} WHERE id = %s", f"due{number}")
        add_schedule(scene, f"due{number}", now_us)
    return lambda scene: plan(scene.connection, horizon_us=HORIZON_US, limit=BATCH, decide=every_minute)


def _queue_near(scene: Scene) -> Call:
    queue(scene, available_at_us=scene.now_us() + HOUR_US)
    stay = SchedulePlan([tick("s", 1)], 0, None)
    return lambda scene: plan(scene.connection, horizon_us=2 * HOUR_US, limit=BATCH, decide=lambda now_us, row: stay)


def _look(scene: Scene) -> Call:
    queue(scene, 5, available_at_us=scene.now_us() + 1_900_000)
    queue(scene, 5, available_at_us=scene.now_us() + HOUR_US)
    return lambda scene: look(scene.connection, node="node", queues=("default", "mail"), jobs=("job",))


def _cancels(scene: Scene) -> Call:
    queue(scene, 5)
    scene.claim()
    return lambda scene: cancels(scene.connection, node="node")


def _mine(scene: Scene) -> Call:
    queue(scene, 5)
    scene.claim()
    return lambda scene: mine(scene.connection, node="node")


def _reap(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n}" if n % 2 else None) for n in range(1, 20)))
    scene.claim(node="dead")
    return lambda scene: reap(scene.connection, node="dead", limit=BATCH, decide=lambda job, crashes: Rerun())


def _keys_wanted(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n}") for n in range(1, 20)))
    return lambda scene: keys_wanted(scene.connection, jobs=("job",), queues=("default",), limit=BATCH)


def _strand(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n % 5 + 1}") for n in range(1, 20)))
    scene.claim()
    return lambda scene: promote_stranded(scene.connection)


CALLS = {
    call.__name__.removeprefix("_"): call
    for call in (
        *(_claim_free, _claim_nothing, _claim_keyed, _finish_plain, _finish_all_kinds, _finish_keyed, _finish_again),
        *(_plan, _queue_near, _look, _cancels, _mine, _reap, _keys_wanted, _strand),
    )
}


def tidy(scene: Scene) -> None:
    """Leave nothing that is not finished."""
    aside = Scene(scene.ledger)  # on a connection of its own, which knows no plans from before
    aside.change("DELETE FROM {attempt} WHERE token > 100000000")
    aside.change("DELETE FROM {run} WHERE created_at > 1000")
    aside.change("UPDATE {exclusive} SET run_id = NULL WHERE run_id IS NOT NULL")
    aside.change("UPDATE {schedule} SET next_due_at = NULL WHERE id < 'far'")
    aside.close()


def works(
    scene: Scene,
    check: Callable[[str, OnPostgres], None] | None = None,
    *,
    only: Collection[str] = tuple(CALLS),
    tidies: bool = True,
) -> dict[str, int]:
    """Return how much work each call is, the second time: then its plans are kept."""
    found = {}
    with metered(scene.connection) as meter:
        for name in [name for name in only for _ in range(2)]:
            call = CALLS[name](scene)
            found[name] = meter.work(partial(call, scene))
            if check is not None and isinstance(meter, OnPostgres):
                check(name, meter)
            if tidies:
                tidy(scene)
    return found


def never_reads_a_whole_table(name: str, meter: OnPostgres) -> None:
    seen = {node["Relation Name"] for node in meter.nodes() if node["Node Type"] == "Seq Scan"}
    assert {table for table in seen if not table.endswith(("node", "job", "pause"))} == set(), name


def assert_alike(little: dict[str, int], much: dict[str, int]) -> None:
    grown = {name: (little[name], work) for name, work in much.items() if work > little[name] * 1.5 + 40}
    assert grown == {}


def test_cost_does_not_grow_with_what_is_finished_or_far_off(scene: Scene) -> None:
    fill(scene, LITTLE)
    analyze(scene)
    little = works(scene)
    fill(scene, MUCH)
    analyze(scene)
    assert_alike(little, works(scene, never_reads_a_whole_table))


def test_nor_if_the_planner_still_believes_that_there_is_little(scene: Scene) -> None:
    """Plans that were made for empty tables, and kept, meet full ones that nobody has analyzed."""
    analyze(scene)
    little = works(scene)
    fill(scene, MUCH)
    assert_alike(little, works(scene, never_reads_a_whole_table))


def test_nor_if_the_planner_believes_that_nothing_is_ever_queued(scene: Scene) -> None:
    """Thousands are queued at once, on connections that plan anew: only a batch of them is looked at."""
    fill(scene, MUCH)
    analyze(scene)
    little = works(scene)
    queue(scene, 3000, available_at_us=5)
    scene.connection.rest()
    assert_alike(little, works(scene, only=("claim_free", "finish_plain", "finish_all_kinds"), tidies=False))


def test_nor_if_the_planner_believes_that_a_job_is_rare_and_that_nothing_ever_runs(scene: Scene) -> None:
    """What it takes to be few, it would rather read whole than in the order that is asked for."""
    add_runs(scene, MUCH, job="other")
    analyze(scene)
    little = works(scene)
    add_runs(scene, MUCH)
    add_runs(scene, 3000, state="running", node="elsewhere")
    scene.connection.rest()
    assert_alike(little, works(scene))


@pytest.mark.parametrize("jobs", [None, ("job",)])
def test_search_key_leads_to_its_newest_runs_whatever_other_keys_there_are(
    scene: Scene, jobs: tuple[str, ...] | None
) -> None:
    def ask() -> list[int]:
        return ids_with(scene.ledger, "customer", "7", before_id=200, limit=20, jobs=jobs, connection=scene.connection)

    def work(other_keys: int) -> int:
        add_runs(scene, other_keys)
        scene.change("DELETE FROM {run_search}")
        others = {"name": "'customer'", "value": _numbered(scene, "v"), "run_id": "n.n"}
        insert_many(scene, "run_search", others, other_keys)
        insert_many(scene, "run_search", others | {"value": "'7'"}, other_keys)
        with metered(scene.connection) as meter:
            found: list[int] = []
            done = [meter.work(lambda: found.extend(ask())) for _ in range(2)]
        assert found == [*range(199, 179, -1)] * 2
        return done[-1]

    little = work(LITTLE)
    assert work(MUCH) <= 1.5 * little
