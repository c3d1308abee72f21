"""Bugs that show over weeks, in restarts and deploys and in ledgers side by side; and when a server's clock is set."""

from __future__ import annotations

from tests.mutants.planting import Code, mutant

_LIVES = "lives"

LIVES = (
    mutant(
        "shutdowns count as losses",
        "a run that a shutdown has interrupted counts as lost, and is given up after three deploys",
        Code(
            "fencepost.core.ending:_fate",
            "return _fate_of_interrupted(policy)",
            "return fate_of_lost(after_loss(policy, crashes=claim.crashes + 1))",
        ),
        among=_LIVES,
    ),
    mutant(
        "ledgers have the same names",
        "fences and checkpoints in a database that two ledgers share are named after runs and jobs alone",
        Code("fencepost.ledger.naming:Naming.fence", "ledger:{self.ledger}:{key}", "ledger:{key}"),
        Code("fencepost.ledger.naming:Naming.instance", "{self.ledger}:{name}", "{name}"),
        among=_LIVES,
    ),
    mutant(
        "no answer of a repetition is asked for",
        "whoever reprocesses repeats what was given up, although somebody has repeated it by hand and that succeeded",
        Code("fencepost.ledger.requests:reprocess", "row.id not in repeated_by", "True"),
        among=_LIVES,
    ),
    mutant(
        "other programs plan and begin what is late",
        "while no node has a job, others plan its ticks in time, and all of them begin when one comes",
        Code(
            "fencepost.engine.ticks:Ticks.plan", "if not self._is_served(row.job, queue_of(row.policy)):", "if False:"
        ),
        Code("fencepost.ledger.misfiring:_Late._merge", "if len(late) < 2:", "if late:"),
        among=_LIVES,
    ),
    mutant(
        "dumps are taken for the ledger in a life",
        "that the file is another than noted is not seen, and a restored ledger is planned and claimed from at once",
        Code("fencepost.core.restored:judge", "if changed:", "if False:"),
        among=_LIVES,
    ),
    mutant(
        "a server's clock ends sessions",
        "a session that has run out by the clock of the lease store is ended, though it was seen to be renewed",
        Code(
            "fencepost.leases.stores.sql.sightings:Sightings.spared_s",
            "return max(0.0, since + ttl_us / 1_000_000 - now)",
            "return 0.0",
        ),
        among="stepped",
    ),
)
