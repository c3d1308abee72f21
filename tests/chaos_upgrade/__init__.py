"""A rolling upgrade under chaos: nodes of the version that brought the reading rule, and of today, on one ledger.

::

    python -m tests.chaos_upgrade postgres mariadb --minutes 5

    old nodes ──▶ migrate ──▶ new nodes join ──▶ old ones are restarted ──▶ old ones leave
              ──▶ the way back: the new ones leave, the old ones come again ──▶ both

All the time processes are killed, stopped and cut off. In the end everything is judged as after any other chaos.
"""
