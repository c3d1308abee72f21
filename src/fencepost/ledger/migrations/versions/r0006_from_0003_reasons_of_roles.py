"""A table for what is wanted of roles, whoever has them.

- `role`: whether those who act in a role have to give a reason for every act (``always``), or need none (``optional``).
  It has one row for each role that acts, so that changing one is a single update.

Versions that know step 0003 can keep working with these tables: they do not read this one, and want no reasons.
"""

from __future__ import annotations

import sqlalchemy as sa

from fencepost.schema.columns import key, number, text
from fencepost.schema.step import MigrationStep

revision = "0006_from_0003"
down_revision = "0005_from_0003"
branch_labels = None
depends_on = None


def upgrade(step: MigrationStep) -> None:
    step.create_table(
        "role",
        sa.Column("role", key(10), primary_key=True),
        sa.Column("reasons", sa.String(10), nullable=False),
        sa.Column("set_at", number()),
        sa.Column("set_by", text()),
    )
    for role in ("operator", "admin"):
        step.insert("role", {"role": role, "reasons": "optional"})
