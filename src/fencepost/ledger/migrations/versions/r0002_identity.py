"""A name that distinguishes this ledger's database from every other, to check whether a connection leads here.

The row is inserted by the first process that needs it: a printed script cannot generate random numbers.
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
