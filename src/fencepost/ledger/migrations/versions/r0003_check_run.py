"""On PostgreSQL a procedure that keeps a run as it is until the transaction ends, and fails if the run is not ours.

It goes along with COMMIT: where it fails, the server does not come to that. And its query is planned once in each
connection, which costs more than the rest of it; so it must be planned for a table that will have grown.
"""

from __future__ import annotations

from fencepost.schema.step import MigrationStep

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade(step: MigrationStep) -> None:
    step.create_check(
        "check_run",
        "is_run bigint, has_token bigint",
        f"{step.name('run')} WHERE id = is_run AND token = has_token AND state = 'running'",
    )
