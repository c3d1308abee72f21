"""What the hot calls cost does not depend on what the ledger holds, nor on what the planner believes that it holds.

Nothing is timed: the databases count their own work. A call is made on a ledger that holds little and on one that holds
much, and must not do more than half as much again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.core.retry import Rerun
from fencepost.core.runs import Requested
from fencepost.ledger.claiming import keys_wanted, mine
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.looking import cancels, look
from fencepost.ledger.planning import SchedulePlan, plan
from fencepost.ledger.promoting import promote_stranded
from fencepost.ledger.reaping import reap
from tests.ledger.hot_scene import HORIZON_US, HOUR_US, Scene, ending, failed, tick
from tests.ledger.test_hot_planning import add_schedule, every_minute
from tests.ledger.work_meter import OnPostgres, metered

BATCH = 50
LITTLE, MUCH = 300, 30_000

Call = Callable[[Scene], object]


@pytest.fixture
def scene(ledger: Ledger) -> Iterator[Scene]:
    scene = Scene(ledger)
    yield scene
    scene.close()


# -- what the ledger holds


def fill(scene: Scene, count: int) -> None:
    """Add finished runs with their attempts, keys that were used, and schedules that are due in years."""
    numbers = {
        "postgresql": f"generate_series(1, {count}) AS n(n)",
        "mysql": f"(SELECT seq AS n FROM seq_1_to_{count}) AS n",
        "sqlite": f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s) n",
    }[scene.ledger.dialect.name]
    text = "cast(n.n as char(20))" if scene.ledger.dialect.name == "mysql" else "cast(n.n as varchar(20))"
    for table in ("exclusive", "schedule"):
        scene.change(f"DELETE FROM {{{table}}}")
    base = scene.last_id()
    states = "CASE WHEN n.n % 50 = 0 THEN 'dead' ELSE 'succeeded' END"
    if scene.ledger.dialect.name != "sqlite":
        states = states.replace("%", "%%")
    run = {
        **{"job": "'job'", "type": "'manual'", "state": states, "ticks": "1", "params": "'{{}}'", "params_hash": "''"},
        **{"priority": "0", "queue": "'default'", "attempts": "1", "failures": "0", "crashes": "0", "node": "'node'"},
        **{"token": "n.n", "created_at": "5", "available_at": "5", "started_at": "6", "ended_at": "7"},
        **{"generation": "0", "id": f"n.n + {base}"},
    }
    attempt = {"run_id": f"n.n + {base}", "number": "1", "token": "n.n", "ended_at": "7", "outcome": "'succeeded'"}
    key = {"{key}": f"concat('used', {text})", "token": "n.n"}
    schedule = {
        **{"id": f"concat('far', {text})", "job": "'job'", "spec": "'{{}}'", "params": "'{{}}'", "origin": "'code'"},
        **{"generation": "0", "planned_through": "0", "next_due_at": f"{scene.now_us() + 1000 * HOUR_US} + n.n"},
        **{"created_at": "0", "updated_at": "0"},
    }
    for table, row in (("run", run), ("attempt", attempt), ("exclusive", key), ("schedule", schedule)):
        columns, values = ", ".join(row), ", ".join(row.values())
        if scene.ledger.dialect.name == "sqlite":
            values = values.replace("concat('used', ", "('used' || ").replace("concat('far', ", "('far' || ")
        scene.change(f"INSERT INTO {{{table}}} ({columns}) SELECT {values} FROM {numbers}")
    if scene.ledger.dialect.name == "postgresql":
        scene.rows("SELECT setval(pg_get_serial_sequence('{run}', 'id'), (SELECT max(id) FROM {run}))")


def analyze(scene: Scene) -> None:
    """Let the database look at what it holds now, and believe in it from then on."""
    word = "ANALYZE TABLE" if scene.ledger.dialect.name == "mysql" else "ANALYZE"
    with scene.desk.autocommit() as cursor:
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
    return lambda scene: plan(scene.desk, horizon_us=HORIZON_US, limit=BATCH, decide=every_minute)


def _queue_near(scene: Scene) -> Call:
    queue(scene, available_at_us=scene.now_us() + HOUR_US)
    stay = SchedulePlan([tick("s", 1)], 0, None)
    return lambda scene: plan(scene.desk, horizon_us=2 * HOUR_US, limit=BATCH, decide=lambda now_us, row: stay)


def _look(scene: Scene) -> Call:
    queue(scene, 5, available_at_us=scene.now_us() + 1_900_000)
    queue(scene, 5, available_at_us=scene.now_us() + HOUR_US)
    return lambda scene: look(scene.desk, node="node", queues=("default", "mail"))


def _cancels(scene: Scene) -> Call:
    queue(scene, 5)
    scene.claim()
    return lambda scene: cancels(scene.desk, node="node")


def _mine(scene: Scene) -> Call:
    queue(scene, 5)
    scene.claim()
    return lambda scene: mine(scene.desk, node="node")


def _reap(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n}" if n % 2 else None) for n in range(1, 20)))
    scene.claim(node="dead")
    return lambda scene: reap(scene.desk, node="dead", limit=BATCH, decide=lambda job, crashes: Rerun())


def _keys_wanted(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n}") for n in range(1, 20)))
    return lambda scene: keys_wanted(scene.desk, jobs=("job",), queues=("default",), limit=BATCH)


def _strand(scene: Scene) -> Call:
    scene.add(*(Requested("job", "manual", exclusive_key=f"used{n % 5 + 1}") for n in range(1, 20)))
    scene.claim()
    return lambda scene: promote_stranded(scene.desk)


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


def works(scene: Scene, check: Callable[[str, OnPostgres], None] | None = None) -> dict[str, int]:
    """Return how much work each call is. Each is made before a few times, so that its plans are kept."""
    found = {}
    with metered(scene.desk) as meter:
        for name, prepare in CALLS.items():
            for _ in range(2):
                call = prepare(scene)
                found[name] = meter.work(lambda call=call: call(scene))  # type: ignore[misc]
                if check is not None and isinstance(meter, OnPostgres):
                    check(name, meter)
                tidy(scene)
    return found


def never_reads_a_whole_table(name: str, meter: OnPostgres) -> None:
    seen = {node["Relation Name"] for node in meter.nodes() if node["Node Type"] == "Seq Scan"}
    assert {table for table in seen if not table.endswith(("node", "job"))} == set(), name


def assert_alike(little: dict[str, int], much: dict[str, int]) -> None:
    grown = {name: (little[name], much[name]) for name in little if much[name] > little[name] * 1.5 + 40}
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
    scene.desk.rest()
    calls = {name: CALLS[name] for name in ("claim_free", "finish_plain", "finish_all_kinds")}
    much = {}
    with metered(scene.desk) as meter:
        for name, prepare in calls.items():
            much[name] = meter.work(lambda call=prepare(scene): call(scene))  # type: ignore[misc]
    assert_alike({name: little[name] for name in much}, much)
