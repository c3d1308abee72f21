"""Leases in a SQL database: what SQLite, PostgreSQL and MySQL/MariaDB have in common.

Three tables. A **session** row is a process's liveness: it is renewed by one statement, however many locks hang on
it. A **lease** row is a name; it is held if `session_id` names a session that exists and has not expired. The row
outlives the hold and carries the token. A **lease_history** row is a grant that ended, written in the transaction
that ended it.

**Death is a deletion.** A session dies when its row is deleted under the condition that it has expired. Renewal and
deletion both lock that row, and each looks again once it has the lock, so exactly one of them wins. The transaction
that deletes the session also frees its leases. Nobody takes a lease from a session that was not deleted first.

**Stale clocks are safe.** A statement may read the clock, then wait for a row lock, and then act. A renewal that
waited for a burial finds no row. A burial that waited for a renewal sees the new expiry. A statement that acts on a
clock read too early prolongs by less and buries later than it might: both err on the side of one holder.

The parts: `statements` (the SQL), `schema` (the tables), `backend` (what a database must bring), `pool` and `calls`
(connections, deadlines, repeats), `endings` (how leases end), `waiting` (watching a name), `store` (the contract).
"""
