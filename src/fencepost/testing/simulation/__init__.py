"""Whole clusters on virtual time: the unmodified loops of several nodes, over the real SQLite ledger, from one seed.

::

    python -m fencepost.testing.simulation --seeds 0:1000       # exit code 1 if a promise was broken
    python -m fencepost.testing.simulation --seed 17 -v         # one of them, and all that happened

    from fencepost.testing.simulation import simulate
    outcome = simulate(17)
    assert not outcome.violations

A seed stands for a cluster (how many nodes, which ttl, which jobs), for what goes wrong in it, and for the order of
everything that happens at the same time. Processes die without a `finally`, are paused for longer than their ttl,
restart, and are deployed anew; clocks step and drift; calls fail before or after they took effect, come late, take
long; ledger and lease store go away; operators press buttons. Then it is quiet, everything must come to its end, and
the checkers of `fencepost.proof` judge all that was seen. The same seed gives the same trace, in any process.

Every thirtieth seed stands for a *life* (`lives`): weeks to years of an installation with its deploys, restarts and
pruning, as a row of scenes with days between them. In a quarter of the others the lease store's clock is set.

To see whether a bug would be found, plant it: ``simulate(seed, patch=lambda: mock.patch.object(…))`` is patched from
before the first node starts until the last one has left.

**Not simulated**: worker processes, programs and event loops (`runners.thread` is what runs the jobs); preemption
between any two lines (tasks are interrupted where they wait, call a store, or take a lock); databases other than
SQLite, whose locks are finer. Nodes here have clocks of their own all the same, and the ledger's is the server's.

Needs ``pip install 'fencepost[testing]'`` (greenlet).
"""

from fencepost.testing.simulation.outcome import SeedOutcome
from fencepost.testing.simulation.run import simulate
from fencepost.testing.simulation.scenario import FAULTS, Scenario, SimulatedFault, scenario

__all__ = ["FAULTS", "Scenario", "SeedOutcome", "SimulatedFault", "scenario", "simulate"]
