"""An application as its users type it. Each line marked ``wrong`` has one mistake, which type checkers must find.

`test_checkers` has mypy and basedpyright read it. Its functions are never called.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from sqlalchemy import Engine, create_engine, text

import fencepost
from fencepost import App, Run, Secret, bulk, cron, current_run, every, fences, locks

app = App("sqlite:///shop.db", ttl="30s")
engine: Engine = create_engine("sqlite:///orders.db")


# -- declaring -------------------------------------------------------------------------------------------------------


@app.job(cron("*/5 * * * *", tz="Asia/Seoul", dst="first"), params={"account": 7}, overlap="queue", misfire="all:100")
def settle(run: Run, account: int, day: date | None = None) -> int:
    with run.transaction() as tx:
        tx.execute(text("UPDATE payment SET settled = 1"))
    run.log.info("%s of %s, due at %s", run.id, run.job, run.due_at.isoformat())
    return account


@app.job
def report(run: Run, customer: str) -> None: ...


@app.job(search=["customer"])
def pay(run: Run, customer: int, api_key: Secret[str], other: Secret[str] | None = None) -> str:
    return api_key.reveal().upper()


@app.job(type="event", effects="idempotent", isolation="read committed", on_crash="hold", formerly=["tell"])
def notify(customer: int, key: str = "") -> None: ...


@app.job(every("1h"), timeout="10m", retries=3, backoff="1s..1m", misfire="once")
async def fetch(run: Run, options: dict[str, Any] | None = None) -> str:
    return run.job


@app.job(type="near-real-time")
def take_any(payload: Any) -> None: ...


@app.job
def nothing() -> None: ...


clean = app.command("clean", ["./clean.sh"], every("1d"), timeout="1h", overlap="forbid")


@app.bulk(cron("0 2 * * *"), target=engine, chunk=2000, partitions=8, over="threads", skip_limit=100, timeout="6h")
class SettleOrders:
    read = bulk.keyset("SELECT id FROM orders WHERE id > :after ORDER BY id LIMIT :limit", key="id")

    def write(self, tx: Any, items: list[Any]) -> None: ...


class ChargeOrders:
    read = bulk.json_lines("orders.jsonl")

    def write(self, tx: Any, items: list[Any]) -> None: ...


@app.bulk(read=bulk.csv_file("orders.csv"), source=None, target=lambda: engine, retry_backoff="1s..1m", overlap="queue")
def load(tx: Any, items: list[Any]) -> None: ...


charge = app.bulk(target="sqlite:///orders.db", memory="256MB")(ChargeOrders)  # mypy knows no decorators of classes


def declaring() -> None:
    app.job(overlap="alow")  # wrong: no such word
    app.job(on_crash="retry")  # wrong: no such word
    app.job(effects="fence")  # wrong: no such word
    app.job(isolation="snapshot")  # wrong: no such word
    app.job(type="batch")  # wrong: no such word
    app.job(misfire=3)  # wrong: not a word at all
    app.job(timeuot="10m")  # wrong: misspelt option
    app.job("*/5 * * * *")  # wrong: a text is no schedule
    app.command("clean", ["./clean.sh"], type="batch")  # wrong: no such word
    cron("30 2 * * *", dst="thrice")  # wrong: no such word
    cron("30 2 * * *", zone="Asia/Seoul")  # wrong: misspelt option
    app.bulk(target=engine, skip_limits=3)  # wrong: misspelt option
    app.bulk(target=engine, over="processes")  # wrong: no such word
    app.bulk(target=engine, chunk="many")  # wrong: not a number
    app.bulk(target=engine, overlap="alow")  # wrong: no such word
    app.bulk(target=7)  # wrong: no database


# -- asking for runs -------------------------------------------------------------------------------------------------


def asking(connection: Any) -> int:
    settle.enqueue(account=7)
    settle.enqueue(7, date(2026, 1, 31))
    settle.enqueue(account=7, key="order-1")
    settle.enqueue(account=7, delay="5m", unique=True, tx=connection)
    settle.enqueue(params={"account": 7})
    settle.options(key="order-1", delay="5m", priority=9, reason="asked by phone").enqueue(account=7)
    settle.options(tx=connection, unique=True).enqueue(7, day=None)
    urgent = report.options(priority=100)
    urgent.enqueue(customer="ann")
    pay.enqueue(customer=7, api_key=Secret("stripe"))
    named = Secret("stripe")
    pay.options(delay="5m").enqueue(7, named, other=None)
    notify.enqueue(customer=7)
    notify.options(key="order-1").enqueue(customer=7, key="its own")
    fetch.enqueue(options={"deep": True})
    take_any.enqueue(payload=[1, 2])
    nothing.enqueue()
    clean.enqueue(whatever=1)
    load.enqueue()
    charge.options(reason="asked by phone").enqueue()
    app.enqueue("settle", params={"account": 7}, key="order-1")
    app.schedules.put("report:42", report, every("1h"), params={"customer": "ann"}, by="ann")
    return settle.options(key="order-1").enqueue(account=7).run_id


def asking_wrongly() -> None:
    settle.enqueue(acount=7)  # wrong: misspelt parameter
    settle.enqueue(account="7")  # wrong: of another type
    settle.enqueue()  # wrong: one is missing
    settle.enqueue(account=7, run=None)  # wrong: the run comes by itself
    settle.options(key="order-1").enqueue(acount=7)  # wrong: misspelt parameter
    settle.options(key="order-1").enqueue(account="7")  # wrong: of another type
    settle.options(key="order-1").enqueue()  # wrong: one is missing
    settle.options(kee="order-1").enqueue(account=7)  # wrong: misspelt option
    settle.options(priority="high").enqueue(account=7)  # wrong: of another type
    settle.options(key="order-1").enqueue(account=7, delay="5m")  # wrong: no parameter of the function
    report.enqueue(customer=7)  # wrong: of another type
    notify.enqueue(custmer=7)  # wrong: misspelt parameter
    pay.enqueue(customer=7, api_key="stripe")  # wrong: of another type
    app.job(search=7)  # wrong: of another type
    notify.options(delay="5m").enqueue("ann")  # wrong: of another type
    fetch.enqueue(options=[1])  # wrong: of another type
    nothing.enqueue(account=7)  # wrong: it takes none
    app.enqueue("settle", param={"account": 7})  # wrong: misspelt option
    app.schedules.put("report:42", report, "1h")  # wrong: a text is no schedule


# -- calling a job as the plain function that it is ------------------------------------------------------------------


async def calling(run: Run) -> str:
    number: int = settle(run, 7)
    number += settle(run=run, account=7, day=None)
    notify(7, key="its own")
    settle(account=7)  # wrong: a plain call has to bring the run
    settle(run, acount=7)  # wrong: misspelt parameter
    name: str = settle(run, 7)  # wrong: it returns a number
    return await fetch(run, options={}) + name + str(number)


# -- operating, locking ----------------------------------------------------------------------------------------------


def operating() -> None:
    app.operations.runs(job="settle", states=["dead"], requested_by="ann", limit=10)
    app.operations.runs(jobs="settle")  # wrong: misspelt filter
    app.operations.runs(retry_of="settle")  # wrong: of another type
    app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-02T00:00Z", by="ann", again=True)
    app.operations.backfill("settle", "2026-01-01T00:00Z", "2026-01-02T00:00Z")  # wrong: nobody is named


def locking() -> None:
    store = locks.connect("memory://")
    with app.lock("month-end", wait="5s", renew_every="2s") as lease, lease.fence(engine, isolation="SERIALIZABLE"):
        fences.write_fenced("report.csv", "1;2", lease)
    found = store.try_lock("month-end", ttl="10s")
    print(found.token if found is not None else "held")
    app.lock("month-end", waits="5s")  # wrong: misspelt option
    store.lock("month-end", renew_evry="2s")  # wrong: misspelt option
    store.try_lock("month-end", wait=[5])  # wrong: no duration
    store.election("planner", margins="1s")  # wrong: misspelt option
    lease.fence(engine, isolation="snapshot")  # wrong: no such word

    @store.exclusive("report:{account}", at_least="1m", on_skip="raise")
    def cleanup(account: int) -> int:
        return account

    print(cleanup(7) + 1)
    cleanup("7")  # wrong: of another type


def seeing(run: Run) -> None:
    seen = current_run() or run
    print(seen.id, seen.attempt, seen.window.start, seen.params["account"], fencepost.__version__)
    print(seen.context)  # wrong: the engine's own
    fencepost.bulk.keyst("SELECT 1", key="id")  # wrong: misspelt function
