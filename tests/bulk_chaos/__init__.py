"""Bulk work under kill -9: one job over many rows on a cluster of real nodes whose workers and supervisors are killed.

    python -m tests.bulk_chaos postgres --rows 1000000 --kills 100
    make chaos-bulk ROWS=1000000 KILLS=100 BULK_PLACES='postgres sqlite+postgres'

::

    __main__      the command: place after place, and a table of what came of it
    material      which rows there are, and what is to become of each: pure, and known to both sides
    application   the job, as each worker loads it
    records       what process() was called with, and when: written down call by call, in a file of each worker
    places        the databases: of the ledger and of the effects, one or two
    cluster       three nodes, started, killed and started again
    course        a job from its beginning to its end, with kills at random in between
    recount       what is in the database in the end, against what ought to be; knows nothing of the code under test
    takeovers     how long the partitions of a killed node stood still
    planted       bugs, to see that the recount finds them

**What is measured.** An item is *redone* if process() is called for it once more. Calls are counted one by one: each
writes sixteen bytes to a file before it does anything else. That outlives kill -9, though not the machine.

**What must hold.** Each row that was neither filtered nor recorded as a dead letter has left its effect, once, with the
right amount; what was put aside is what had to be; the counts add up; no process that was lost left more than a chunk
to be redone, nor did all together leave more than a chunk for each kill; the run that was asked for ended well, by
itself.
"""
