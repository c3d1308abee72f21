"""The application of the demo: a job of each type. ``fencepost run fencepost.demo.application:app`` starts a node.

Every job writes one row to `demo_effect` for each run, in the transaction that ends the run. A run that was done twice
would have two rows, and a run that is recorded as done but was not would have none. The recount looks for both.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from fencepost import App, Run
from fencepost.core.tick import microseconds
from fencepost.demo.plan import CHUNKS, IMPORT, QUOTE, RECONCILE, SETTLE, notice_key
from fencepost.threaded import ThreadedRuntime

app = App()
_pause = ThreadedRuntime().sleep  # stands for the work that a real job would do


@app.job(SETTLE, overlap="queue", misfire="all:100", effects="fenced", backoff="1s..5s")
def settle(run: Run) -> None:
    """Settle one second's payments, and request the customer's notice: both are committed, or neither is."""
    _pause(0.15)
    with run.transaction(final=True) as tx:
        _effect(run, tx)
        notify.enqueue(customer=run.id % 7, key=notice_key(microseconds(run.due_at)), tx=tx)


@app.job(RECONCILE, overlap="forbid")
def reconcile(run: Run) -> None:
    """Compare the books. This takes longer than the interval, so a run that comes due meanwhile is skipped."""
    _pause(2.5)
    with run.transaction(final=True) as tx:
        _effect(run, tx)


@app.job(IMPORT, type="bulk", overlap="queue", effects="fenced")
def import_orders(run: Run) -> None:
    """Import orders chunk by chunk. A node that takes over continues after the last committed chunk."""
    with run.transaction() as tx:
        done = tx.execute(text("SELECT count(*) FROM demo_chunk WHERE run_id = :run"), {"run": run.id}).scalar_one()
    for chunk in range(done, CHUNKS):
        _pause(0.25)
        with run.transaction(final=chunk == CHUNKS - 1) as tx:
            row = {"run": run.id, "chunk": chunk, "token": run.token}
            tx.execute(text("INSERT INTO demo_chunk (run_id, chunk, token) VALUES (:run, :chunk, :token)"), row)
            if chunk == CHUNKS - 1:
                _effect(run, tx)
        run.progress((chunk + 1) / CHUNKS, f"chunk {chunk + 1} of {CHUNKS}")


@app.job(QUOTE, type="near-real-time", retries=3, backoff="300ms..1s")
def quote(run: Run) -> None:
    """Fetch the latest prices from a service that replies only to the second request."""
    if run.attempt % 2 == 1:
        raise ConnectionError("the exchange did not answer")
    with run.transaction(final=True) as tx:
        _effect(run, tx)


@app.job(type="event")
def notify(run: Run, customer: int) -> str:
    """Notify a customer that a payment was settled. `settle` requests it in its own transaction."""
    with run.transaction(final=True) as tx:
        _effect(run, tx)
    return f"customer {customer} was notified"


@app.job(type="manual")
def report(run: Run, month: str) -> str:
    """Write a report that was requested as with ``fencepost trigger``."""
    _pause(0.5)
    with run.transaction(final=True) as tx:
        _effect(run, tx)
    return f"the report of {month}"


def _effect(run: Run, tx: Connection) -> None:
    row = {"job": run.job, "due": microseconds(run.due_at), "run": run.id, "token": run.token, "node": run.node}
    tx.execute(
        text("INSERT INTO demo_effect (job, due_us, run_id, token, node) VALUES (:job, :due, :run, :token, :node)"), row
    )
