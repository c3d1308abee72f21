"""On PostgreSQL a procedure that keeps a fence as it is until the transaction ends, and fails if it is not ours.

It goes along with COMMIT, as the ledger's does for a run.
"""

from __future__ import annotations

from fencepost.schema.step import MigrationStep

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade(step: MigrationStep) -> None:
    step.create_check(
        "check_fence",
        "has_key text, has_token bigint, has_grant text",
        f"{step.name('fence')} WHERE key = has_key AND token = has_token AND grant_id = has_grant",
    )
