"""A holder that stops itself in the middle of its fenced transaction, as a whole process: to be let go on by a test.

``python -m tests.fence.paused_holder LEDGER_URL TARGET_URL MOMENT`` claims the run there is, and says how it ended.
The moment is `written`, when its effects are written and nothing is checked, or `checked`, between the last check and
COMMIT.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from fencepost import Run
from fencepost.core.policy import Policy
from fencepost.core.runs import Claim
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Job
from fencepost.fence import databases
from fencepost.fence.sources import quick
from fencepost.ledger.claiming import claim
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.urls import LedgerUrl
from fencepost.threaded import ThreadedRuntime
from tests.ledger.scene import waits

WRITTEN, CHECKED = "written", "checked"
TTL_S = 1.0
RUNTIME = ThreadedRuntime()


def claimed_by(node: str, ledger: Ledger) -> Claim | None:
    connection = ledger.connect(node)
    got = claim(connection, node=node, jobs=("settle",), queues=("default",), limit=1, decide=waits).claims
    connection.rest()
    return got[0] if got else None


def run_of(claimed: Claim, node: str, ledger: Ledger) -> Run:
    job = Job.of(lambda: None, policy=Policy.of("manual"), name="settle")
    return Run(job, claimed, RunContext(node=node, runtime=RUNTIME, ledger=lambda: ledger, ttl_s=TTL_S))


def engine_to(url: str) -> Any:
    import sqlalchemy

    return sqlalchemy.create_engine(LedgerUrl.parse(url).sqlalchemy())


def settle(tx: Any, token: int) -> None:
    """Write to the one row that everybody wants to write to."""
    from sqlalchemy import text

    tx.execute(text("UPDATE account SET settled_by = :token"), {"token": token})


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def main() -> None:
    ledger_url, url, moment = sys.argv[1:]
    ledger = open_ledger(ledger_url, RUNTIME)
    claimed = claimed_by("one", ledger)
    assert claimed is not None
    if moment == CHECKED:
        between_check_and_commit(stop)
    try:
        with run_of(claimed, "one", ledger).transaction(engine_to(url)) as tx:
            settle(tx, claimed.token)
            if moment == WRITTEN:
                stop()
    except Exception as error:  # noqa: BLE001 - the test wants to know
        print(f"refused: {type(error).__name__}: {error}", flush=True)
    else:
        print("committed", flush=True)


def between_check_and_commit(pause: Callable[[], None]) -> None:
    """Do this in every fenced transaction from now on; also where the server is asked for both at once."""
    check, send = databases.ServerDatabase.check, quick._sent

    def checked(self: Any, *arguments: Any) -> Any:
        answer = check(self, *arguments)
        pause()
        return answer

    def sent(connection: Any, *statements: bytes, **_: Any) -> Any:
        if statements[-1] != b"COMMIT":
            return send(connection, *statements)
        send(connection, *statements[:-1])
        pause()
        return send(connection, b"COMMIT")

    databases.ServerDatabase.check = checked  # type: ignore[method-assign]
    quick._sent = sent


if __name__ == "__main__":
    main()
