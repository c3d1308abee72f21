"""What is cut of the engine; what is cut of bulk work is in `bulk_paths`."""

from __future__ import annotations

from fencepost.core.runtime import ProgramExit
from fencepost.engine.runners import verdicts
from fencepost.ledger.claiming import claim
from tests.crashpoints import bulk_paths
from tests.crashpoints.path import FENCE, PATHS, Do, claimed, path
from tests.crashpoints.world import World, renewing

__all__ = ["PATHS", "bulk_paths"]

# -- plan


def _due_schedules(world: World) -> None:
    world.node("victim")
    world.schedule("ticks_all", "ticks_once", "ticks_skip")
    world.ask("plain")
    world.change("UPDATE {run} SET state = 'waiting', waits_for = 'time'")


@path("plan", "plan", _due_schedules)
def _plan(world: World) -> None:
    world.victim.step(world.victim.planner.step)


# -- claim


def _free_runs(world: World) -> None:
    world.node("victim")
    world.ask("plain", 3)


@path("claim", "claim", _free_runs)
def _claim(world: World) -> None:
    victim = world.victim
    victim.step(victim.exchange.step)


def _keyed_runs(world: World) -> None:
    """A key that nobody has used, one that is free, and one that is taken, which some want in each possible way."""
    victim = world.node("victim")
    for key in ("free", "taken"):
        world.ask("alone", key=key)
        claimed(victim)
        if key == "free":
            victim.runner.work()
            claimed(victim)
    world.ask("alone", key="new")
    world.ask("alone", key="free")
    world.ask("alone", key="taken")
    world.ask("replaces", key="taken")
    world.ask("forbids", key="taken", origin_key="tick:1:nothing")
    world.ask("plain")
    victim.exchange._expect_work()


@path("claim", "claim keys", _keyed_runs)
def _claim_keys(world: World) -> None:
    victim = world.victim
    victim.step(victim.exchange.step)


def _unknown_claims(world: World) -> None:
    """Runs in the victim's name of which it does not know: a claim that was not answered."""
    victim = world.node("victim")
    claimed(victim)
    world.ask("plain", 2)
    world.ask("alone", key="k")
    connection = world.ledger.connect("unanswered")
    overlap = victim.state.policies.overlap
    wanted = ("plain", "alone")
    claim(connection, node=victim.node_id, jobs=wanted, queues=("default",), limit=10, decide=overlap)
    connection.rest()
    victim.exchange._is_unsure = True
    victim.exchange.drain()


@path("claim", "hand back", _unknown_claims)
def _hand_back(world: World) -> None:
    victim = world.victim
    victim.step(victim.exchange.step)
    victim.exchange._is_draining = False


# -- finish


def _plain_ends(world: World) -> None:
    victim = world.node("victim")
    world.ask("plain", 3)
    claimed(victim)
    victim.runner.work()


@path("finish", "finish", _plain_ends)
def _finish(world: World) -> None:
    world.victim.step(world.victim.exchange.step)


def _mixed_ends(world: World) -> None:
    """One that succeeded and has others waiting for its key, one that failed, one that crashed, one never begun."""
    victim = world.node("victim")
    world.ask("alone", key="k")
    claimed(victim)
    world.ask("alone", 2, key="k")
    world.ask("fails")
    claimed(victim)
    victim.runner.work()
    world.ask("plain", 2)
    world.ask("alone", key="crashes")
    victim.exchange._collect()
    ended = list(victim.exchange._ended)
    victim.exchange._ended.clear()
    claimed(victim)
    victim.exchange._ended.extend(ended)
    first, second, third = victim.runner.held
    victim.runner.end(first, verdicts.crashed(first, ProgramExit(-9), took_us=1))
    victim.runner.end(second, verdicts.returned(second))
    victim.runner.end(third, verdicts.crashed(third, ProgramExit(-9), took_us=1))


@path("finish", "finish and promote", _mixed_ends)
def _finish_and_promote(world: World) -> None:
    world.victim.step(world.victim.exchange.settle)


def _refused_end(world: World) -> None:
    """A run that ended here when it was somebody else's already."""
    victim = world.node("victim")
    world.ask("plain")
    claimed(victim)
    victim.runner.end(victim.runner.held[0], verdicts.crashed(victim.runner.held[0], ProgramExit(-9), took_us=1))
    world.change("UPDATE {run} SET token = token + 1, node = 'nobody', state = 'queued', attempts = 0")


@path("finish", "late finish", _refused_end)
def _late_finish(world: World) -> None:
    world.victim.step(world.victim.exchange.settle)


# -- reap


def _dead_node(world: World) -> None:
    """A node that is gone, with a key that others wait for, a run that is to be cancelled, and a plain one."""
    victim = world.node("victim")
    renewing(victim)
    gone = world.node("gone")
    world.ask("alone", key="k")
    world.ask("plain", 2)
    claimed(gone)
    world.ask("alone", 2, key="k")
    claimed(gone)
    world.change("UPDATE {run} SET cancel_requested_at = 1 WHERE id = %s", gone.runner.held[-1].run_id)
    world.ground.expire_sessions(*(kept.session.id for kept in gone.kept))
    world.nodes.remove(gone)
    gone.close()


@path("reap", "reap", _dead_node)
def _reap(world: World) -> None:
    world.victim.step(world.victim.reaper.step)


# -- promote


def _stranded(world: World) -> None:
    """Runs that wait for a key which nobody has, and for one whose holder has ended."""
    victim = world.node("victim")
    claimed(victim)
    world.ask("alone", key="ended")
    claimed(victim)
    victim.runner.work()
    claimed(victim)
    [(run_id,)] = world.rows("SELECT r.id FROM {run} r")
    world.change("UPDATE {exclusive} SET run_id = %s", run_id)
    world.ask("alone", 2, key="ended")
    world.ask("alone", 2, key="nobodys")
    world.change("UPDATE {run} SET state = 'waiting', waits_for = 'key' WHERE state = 'queued'")


@path("promote", "promote", _stranded)
def _promote(world: World) -> None:
    world.victim.step(world.victim.reaper.step)


# -- heartbeat


def _outside(world: World) -> None:
    world.stranger("victim")
    world.ask("plain")


@path("heartbeat", "join", _outside)
def _join(world: World) -> None:
    world.victim.step(world.victim.join)


def _inside(world: World) -> None:
    world.node("victim")
    world.ask("plain")


@path("heartbeat", "heartbeat", _inside)
def _heartbeat(world: World) -> None:
    world.victim.step(world.victim.beat)


def _with_a_grant_gone(world: World) -> None:
    _inside(world)
    world.victim.locks.lock("extra", ttl=30.0).acquire()
    world.victim.locks._store.revoke(world.victim.locks.read("extra"))  # type: ignore[arg-type]


@path("heartbeat", "heartbeat, a grant is gone", _with_a_grant_gone)
def _heartbeat_gone(world: World) -> None:
    world.victim.step(world.victim.beat)


@path("heartbeat", "leave", _inside)
def _leave(world: World) -> None:
    world.victim.step(lambda now: world.victim.membership.close())


def _suspended(world: World) -> None:
    """A node whose session ran out, and that joined again with a run it kept up, and one it did not."""
    victim = world.node("victim")
    world.ask("kept")
    world.ask("plain")
    claimed(victim)
    world.skipped.s += 31.0
    for kept in victim.kept:
        kept.has_ended()
        kept._step_down(kept.lost_reason())
    world.ground.expire_sessions()
    victim.join()


@path("heartbeat", "adopt", _suspended)
def _adopt(world: World) -> None:
    world.victim.step(world.victim.exchange.step)


# -- fence


def _one_claim(job: str, **params: str) -> Do:
    def prepare(world: World) -> None:
        victim = world.node("victim")
        victim.beat()
        world.ask(job, **params)
        claimed(victim)
        victim.join()

    return prepare


def _works(world: World) -> None:
    world.victim.runner.work()


for _name, _job, _params in (
    ("run row", "chunks", {}),
    ("run row, serializable", "serial", {}),
    ("run row, final", "final", {"key": "k"}),
    ("fence row", "far", {}),
):
    path(FENCE, _name, _one_claim(_job, **_params))(_works)
