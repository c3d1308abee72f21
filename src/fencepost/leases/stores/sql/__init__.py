"""Leases in a SQL database: what SQLite, PostgreSQL and MySQL/MariaDB have in common.

There are three tables. A **session** row is a live process: one statement renews it, however many locks it holds. A
**lease** row is a name; it is held if `session_id` names a session that exists and has not expired. The row outlives
the hold and contains the token. A **lease_history** row is a grant that ended, written in the transaction that ended
it.

**Death is a deletion.** A session dies when its row is deleted under the condition that it has expired. Renewal and
deletion both lock that row, and each checks it again under the lock, so exactly one of them succeeds. The transaction
that deletes the session also frees its leases. No lease is taken from a session that was not deleted first.

**Stale clocks are safe.** A statement may read the clock, then wait for a row lock, and then act. A renewal that waited
for a deletion finds no row. A deletion that waited for a renewal sees the new expiry. A statement that uses an old
reading of the clock extends a session by less, or deletes it later, than possible: both are safe.

The parts: `statements` (the SQL), `schema` (the tables), `backend` (what a database must provide), `pool` and `calls`
(connections, deadlines, retries), `endings` (how leases end), `waiting` (watching a name), `store` (the contract).
"""
