"""PostgreSQL, MySQL or MariaDB, and SQLite: the code that leases, ledger, fences and bulk jobs share.

=================  =====================================================================================
troubles           what an error of any driver means; `concerns`: what a user's failed statement is about
postgres, mysql    URL, clock, session settings, and requirements on a server; no driver is imported
psycopg_link       connecting to PostgreSQL, with a limit on every wait
psycopg_channel    listening to a channel of PostgreSQL
pymysql_link       connecting to MySQL or MariaDB, with a limit on every wait
sqlite             opening a SQLite file, and checking whether it is still the same one
forked_sqlite      SQLite in a forked child; `held_files`: which files a user's transaction has
cursors            plain cursors on users' own connections
full_server        whether a server has no free connection, or a file is busy
=================  =====================================================================================

Each package that uses this one has only its own statements, and no other code about the databases.
"""
