"""A thousand runs a second, as the engine writes them: batches that are enqueued, claimed and finished.

    python bench/web_load.py URL RUNS_PER_S SECONDS

Uses the calls that nodes make, without executing anything: what the ledger gets to do is the same. Prints when it
begins, and at the end how many runs it has finished in how many seconds.
"""

from __future__ import annotations

import sys
import time

from fencepost.core.overlap import START, Decision
from fencepost.core.runs import Ending, Requested
from fencepost.ledger import requests
from fencepost.ledger.claiming import claim
from fencepost.ledger.finishing import finish
from fencepost.ledger.ledger import open_ledger
from fencepost.threaded import ThreadedRuntime

BATCH = 100
JOB, QUEUE, NODE = "job-0001", "load", "node-0000"


def main() -> None:
    url, per_s, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    ledger = open_ledger(url, ThreadedRuntime())
    connection = ledger.connect("load")
    print("begins", flush=True)
    began_at, done = time.monotonic(), 0
    while (now := time.monotonic()) < began_at + seconds:
        if done > per_s * (now - began_at):
            time.sleep(0.01)
            continue
        requests.enqueue(ledger, [Requested(JOB, "manual", queue=QUEUE)] * BATCH)
        claims = claim(connection, node=NODE, jobs=(JOB,), queues=(QUEUE,), limit=BATCH, decide=_start).claims
        endings = [Ending(each.run_id, each.attempt, each.token, "succeeded", "succeeded") for each in claims]
        finish(connection, endings)
        done += len(endings)
    print(f"{done} {time.monotonic() - began_at:.2f}", flush=True)


def _start(*_: object, **__: object) -> Decision:
    return START


if __name__ == "__main__":
    main()
