"""Private instances of real servers for tests and benchmarks.

Each module holds one server: its own data folder, its own free loopback port, started and stopped by code, killable
and restartable on the same port. Import the module of the server you need; a server whose package is missing breaks
only its own module. ``python -m testbed.provision`` makes present what can be made present and says what is not.

    from testbed.postgres import Postgres

    with Postgres() as server:
        connect(server.url)
        server.kill()       # SIGKILL, whole process tree
        server.restart()    # same data, same port

Nothing started here outlives the process that started it: see ``testbed.keeper``.
"""
