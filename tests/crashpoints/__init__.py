"""Killed before and after every statement and message of the main paths: enumerated, recovered, checked.

A path is played once while its round trips are counted. Then it is played again for each of them and for each way in
which it can go wrong there, other nodes put things in order, and everything is counted anew.

=============  =======================================================================================
`points`       where a path can be cut, and the ways in which it is
`drivers`      makes every round trip of psycopg, PyMySQL and sqlite3 such a point
`grounds`      databases to play on; `by_hand` a runtime, a runner and a node that do nothing by themselves
`world`        the nodes of one play, and what they do to put things in order
`paths`        what is cut: plan, claim, finish, reap, promote, heartbeat, fence
`bulk_paths`   the same of bulk work: chunks, partitions, their plan; `bulk` has the jobs, and recounts
`checking`     what must hold in the end
`playing`      records, plays, counts; `child` is the process that ends in the middle
`messages`     the same between a supervisor and its worker processes
=============  =======================================================================================
"""
