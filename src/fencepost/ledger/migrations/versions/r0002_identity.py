"""A name that tells this ledger's database from every other, so that a connection can be asked whether it leads here.

The row is written by whoever first asks for it: a script that is printed cannot roll dice.
"""

from __future__ import annotations

import sqlalchemy as sa

from fencepost.schema.step import MigrationStep

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade(step: MigrationStep) -> None:
    step.create_table(
        "identity",
        sa.Column("only", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("id", sa.String(64), nullable=False),
    )
