"""A procedure on PostgreSQL that locks a run until the transaction ends, and fails if the run was taken away.

It is called together with COMMIT: if it fails, the server does not commit. Its query is planned once per connection,
which costs more than the rest, so it must be planned for a table that will have grown.
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
