"""The ledger as everybody else sees it: one object with a method for each thing asked of it.

Each call is written in a module of its own, as a function of the `Database`; here they are only gathered. Loops of the
engine pass their own `Desk`; calls without one borrow a connection for their duration, from any thread.
`open_ledger` connects to nothing; the first use does.
"""

from __future__ import annotations

from fencepost.core.runtime import Runtime
from fencepost.ledger import (
    claiming,
    deploys,
    finishing,
    history,
    looking,
    migrations,
    planning,
    promoting,
    pruning,
    reaping,
    requests,
    waking,
)
from fencepost.ledger import identity as of_identity
from fencepost.ledger import jobs as of_jobs
from fencepost.ledger import journal as of_journal
from fencepost.ledger import nodes as of_nodes
from fencepost.ledger import schedules as of_schedules
from fencepost.ledger.database import Database
from fencepost.ledger.urls import LedgerUrl


class Ledger(Database):
    """One database of schedules, runs and all that happened. Shows no password."""

    # tables
    migrate = migrations.migrate
    check_schema = migrations.check_schema
    ready_schema = migrations.ready_schema
    identity = of_identity.identity
    # nodes and jobs
    join = of_nodes.join
    leave = of_nodes.leave
    note_pause = of_nodes.note_pause
    nodes = of_nodes.nodes
    living_nodes = of_nodes.living_nodes
    register = of_jobs.register
    jobs = of_jobs.jobs
    job = of_jobs.job
    # schedules
    sync_code = deploys.sync_code
    put_schedule = of_schedules.put
    delete_schedule = of_schedules.delete
    pause_schedule = of_schedules.pause
    resume_schedule = of_schedules.resume
    schedules = of_schedules.schedules
    schedule = of_schedules.schedule
    # requests and operators
    enqueue = requests.enqueue
    enqueue_unique = requests.enqueue_unique
    cancel = requests.cancel
    retry = requests.retry
    release_held = requests.release_held
    reprocess = requests.reprocess
    # history
    runs = history.runs
    run = history.run
    attempts = history.attempts
    why = history.why
    counts = history.counts
    journal = of_journal.journal
    journal_entries = of_journal.entries
    prune = pruning.prune
    # the loops of a node, each on a desk of its own
    plan = staticmethod(planning.plan)
    claim = staticmethod(claiming.claim)
    keys_wanted = staticmethod(claiming.keys_wanted)
    mine = staticmethod(claiming.mine)
    finish = staticmethod(finishing.finish)
    look = staticmethod(looking.look)
    cancels = staticmethod(looking.cancels)
    check = staticmethod(looking.check)
    progress = staticmethod(looking.progress)
    reap = staticmethod(reaping.reap)
    promote_stranded = staticmethod(promoting.promote_stranded)
    listener = waking.listener


def open_ledger(url: str, runtime: Runtime) -> Ledger:
    """Return the ledger that `url` names, without connecting; `InvalidUrl` or `MissingExtra` say what is wrong."""
    return Ledger(LedgerUrl.parse(url), runtime)
