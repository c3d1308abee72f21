"""Columns and tables for ledgers that live for months, with deploys and several programs.

- `deploy`: when a set of declarations, identified by its fingerprint, was first seen. `node.fingerprint`: that of
  a node.
- `node.draining_at`: since when a node takes no more runs and waits for those that it has.
- `schedule.no_node_since`: since when no living node has the job of a schedule, which is not planned then. The index
  of due schedules that have a node is in addition to the one that older versions use. Runs that no living node can
  take wait for one, and have their own index.
- `identity.evidence`: what distinguishes this database from a restored or copied one, as JSON; `era`: how often a
  person has accepted it since; `beat_at`: the last sign of life of any node; `held_why`: why planning and claiming are
  stopped.
- `seal`, only on MySQL and MariaDB: a table whose row, or whose creation, shows when it was created. A dump does not
  contain that.
- `identity.nameless_until`: until when nodes were alive whose names in databases of effects do not contain the ledger.
  A ledger that has jobs before this step had such nodes.
- `run.root`: the first of a run and its repetitions, stored in each of these: see `fencepost.ledger.roots`.
  The index of repetitions finds the runs that repeat a run.

Versions that know step 0003 can keep working with these tables: every new column may be NULL.
"""

from __future__ import annotations

import sqlalchemy as sa

from fencepost.schema.columns import key, number, text
from fencepost.schema.step import MigrationStep

revision = "0004_from_0003"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade(step: MigrationStep) -> None:
    step.add_column("node", sa.Column("draining_at", number()))
    step.add_column("node", sa.Column("fingerprint", key(32)))
    step.create_table(
        "deploy",
        sa.Column("fingerprint", key(32), primary_key=True),
        sa.Column("first_seen_at", number(), nullable=False),
    )
    step.add_column("schedule", sa.Column("no_node_since", number()))
    step.create_index(
        "schedule",
        "ready",
        "next_due_at",
        where="next_due_at IS NOT NULL AND no_node_since IS NULL",
        whole=("no_node_since",),
    )
    step.create_index(
        "run", "parked", "job", "queue", "id", where="state = 'waiting' AND waits_for = 'node'", whole=None
    )
    step.create_index("schedule", "unserved", "id", where="no_node_since IS NOT NULL", whole=None)
    step.add_column("identity", sa.Column("evidence", text()))
    step.add_column("identity", sa.Column("era", number()))
    step.add_column("identity", sa.Column("beat_at", number()))
    step.add_column("identity", sa.Column("held_why", text()))
    step.create_seal("seal")
    step.add_column("identity", sa.Column("nameless_until", number()))
    last = f"SELECT max(seen_at) FROM {step.name('job')}"  # noqa: S608 - checked identifiers
    step.execute(f"UPDATE {step.name('identity')} SET nameless_until = ({last}) WHERE nameless_until IS NULL")  # noqa: S608
    step.add_column("run", sa.Column("root", sa.String(64)))
    step.create_index("run", "repetition", "retry_of", where="retry_of IS NOT NULL")
    step.create_index("run", "root", "root", where="root IS NOT NULL")
