"""PostgreSQL, MySQL or MariaDB, and SQLite: everything that leases, ledger, fences and bulk work share about them.

=================  =====================================================================================
troubles           what an error of any driver means; `concerns`: what a failed statement of a user's is about
postgres, mysql    URL, clock, session settings, and what a server must be like; no driver is imported
psycopg_link       connecting to PostgreSQL, with a limit on every wait
psycopg_channel    listening to a channel of PostgreSQL
pymysql_link       connecting to MySQL or MariaDB, with a limit on every wait
sqlite             opening a SQLite file, and telling whether it is still the same one
forked_sqlite      SQLite in a forked child; `held_files`: which files a transaction of the user's has
cursors            plain cursors on users' own connections
full_server        whether a server has no connection free, or a file is busy
=================  =====================================================================================

Each package above keeps its own statements, and nothing else about the databases.
"""
