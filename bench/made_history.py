"""Months of history for benchmarks, made inside the database: 1,000 jobs, their runs, attempts, journal and audit.

The bulk of it (`Filling.base`) is the same whenever it is made, apart from the instant at which it ends, so it can be
kept (`kept_history.py`). What has to be recent, the last day and what is live, is added later (`Filling.today`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fencepost.core.policy import Policy
from fencepost.core.schedule import cron, schedule_to_json

JOBS = 1_000
DAYS = 180
DAY_US = 86_400 * 1_000_000
NODES, LIVING = 60, 8
QUEUED, RUNNING, WAITING = 400, 200, 400
POLICY = Policy.of("scheduled").to_json()
SIGNATURE = json.dumps(
    {"async": False, "more": False, "run": None, "parameters": [{"kind": "int", "name": "customer", "required": False}]}
)
CUSTOMER = '{"customer": '
SPEC = schedule_to_json(cron("*/5 * * * *"))
BATCH = 1_000_000


# -- how a database writes it ----------------------------------------------------------------------------------------


class Words:
    """How one kind of database counts, cuts and joins texts."""

    name = "postgresql"
    quote = '"'

    def series(self, first: int, last: int) -> str:
        """Return a table `s` with the column `i`."""
        return f"(SELECT g AS i FROM generate_series({first}::bigint, {last}::bigint) g) s"

    def whole(self, value: str) -> str:
        return f"floor({value})::bigint"

    def numbered(self, word: str, number: str) -> str:
        return f"('{word}' || to_char({number}, 'FM0000'))"

    def text(self, *parts: str) -> str:
        return f"concat({', '.join(parts)})"

    def rest(self, number: str, by: int) -> str:
        return f"mod({number}, {by})"

    def into(self, table: str, columns: str) -> str:
        names = columns.replace(" by,", f" {self.quote}by{self.quote},")
        return f"INSERT INTO fencepost_{table} ({names})"


class MariaWords(Words):
    name = "mysql"
    quote = "`"

    def series(self, first: int, last: int) -> str:
        return f"(SELECT seq AS i FROM seq_{first}_to_{last}) s"

    def whole(self, value: str) -> str:
        return f"floor({value})"

    def numbered(self, word: str, number: str) -> str:
        return f"concat('{word}', lpad({number}, 4, '0'))"


class SqliteWords(Words):
    name = "sqlite"

    def series(self, first: int, last: int) -> str:
        rest = f"SELECT i + 1 FROM c WHERE i < {last}"
        return f"(WITH RECURSIVE c(i) AS (SELECT {first} UNION ALL {rest}) SELECT i FROM c) s"

    def whole(self, value: str) -> str:
        return f"CAST({value} AS INTEGER)"

    def numbered(self, word: str, number: str) -> str:
        return f"printf('{word}%04d', {number})"

    def text(self, *parts: str) -> str:
        return f"({' || '.join(parts)})"

    def rest(self, number: str, by: int) -> str:
        return f"(({number}) % {by})"


# -- what is made ----------------------------------------------------------------------------------------------------

_RUN = (
    "id, job, type, state, waits_for, schedule, origin_key, first_due_at, due_at, ticks, params, params_hash, "
    "requested_by, priority, queue, exclusive_key, attempts, failures, crashes, node, token, created_at, available_at, "
    "started_at, ended_at, error_code, error, sla_at, retry_of, generation, why, root"
)


class Filling:
    """Statements that fill the tables of a ledger. `execute` runs one; `until_us` is when the history ends."""

    def __init__(self, words: Words, execute: Callable[[str], Any], until_us: int) -> None:
        self.w = words
        self._execute = execute
        self._until_us = until_us

    def base(self, runs: int) -> None:
        """Make the bulk: ids 1 to `runs`, over half a year, all of which have ended."""
        self._few()
        step = max(DAYS * DAY_US // runs, 1)
        for first in range(1, runs + 1, BATCH):
            last = min(first + BATCH - 1, runs)
            self._runs(first, last, start=self._until_us - runs * step, step=step, offset=0)
            self._attempts(first, last)
        self._notes(
            1, max(runs // 20, 1), start=self._until_us - DAYS * DAY_US, step=DAYS * DAY_US // (runs // 20 or 1)
        )
        self._audit(max(runs // 50, 100))
        self._searches(runs)

    def runs_alone(self, runs: int) -> None:
        """Make runs that have ended, a second apart, and nothing else."""
        start = self._until_us - runs * 1_000_000
        for first in range(1, runs + 1, BATCH):
            self._runs(first, min(first + BATCH - 1, runs), start=start, step=1_000_000, offset=0)
        self._tell_sequences(runs, 1)

    def today(self, runs: int, count: int) -> None:
        """Make the last day, `count` runs that have ended, and what is live."""
        step = DAY_US // count
        self._runs(runs + 1, runs + count, start=self._until_us - DAY_US, step=step, offset=runs)
        self._attempts(runs + 1, runs + count)
        notes = count // 20 + 1
        first = max(runs // 20, 1)
        self._notes(first + 1, first + notes, start=self._until_us - DAY_US, step=DAY_US // notes, offset=first)
        top = runs + count
        for state, waits_for, number in (
            ("queued", None, QUEUED),
            ("running", None, RUNNING),
            ("waiting", "time", WAITING // 2),
            ("waiting", "key", WAITING // 4),
            ("waiting", "person", WAITING // 20),
            ("waiting", "node", WAITING // 5),
        ):
            self._live(top + 1, top + number, state, waits_for)
            top += number
        self._tell_sequences(top, first + notes)

    def _runs(self, first: int, last: int, *, start: int, step: int, offset: int) -> None:
        w, job = self.w, self._job("i")
        at = f"({start} + (i - {offset}) * {step})"
        is_tick = f"{w.rest('i', 10)} < 7"
        turn = w.rest("i * 7919", 1000)
        state = (
            f"CASE WHEN {turn} < 5 THEN 'dead' WHEN {turn} < 10 THEN 'cancelled' WHEN {turn} < 25 THEN 'skipped' "
            f"WHEN {turn} < 30 THEN 'misfired' ELSE 'succeeded' END"
        )
        ran = f"({turn} < 5 OR {turn} >= 30)"
        took = f"(1000 + {w.rest('i * 104729', 60_000_000)})"
        self._execute(
            f"{w.into('run', _RUN)} SELECT i, {job}, 'scheduled', {state}, NULL, CASE WHEN {is_tick} THEN {job} END, "
            f"CASE WHEN {is_tick} THEN {w.text(chr(39) + 'tick:' + chr(39), at, chr(39) + ':' + chr(39), job)} END, "
            f"CASE WHEN {is_tick} THEN {at} END, CASE WHEN {is_tick} THEN {at} END, 1, "
            f"{w.text(_quoted(CUSTOMER), w.rest('i', 5000), _quoted(chr(125)))}, "
            f"{_quoted('5f' * 32)}, "
            f"CASE WHEN {is_tick} THEN NULL WHEN {w.rest('i', 5000)} = 9 THEN 'user:rare' ELSE 'user:ann' END, "
            f"0, CASE WHEN {w.rest('i', 4)} = 0 THEN 'slow' ELSE 'default' END, {job}, "
            f"CASE WHEN {turn} < 5 THEN 3 WHEN {ran} THEN 1 ELSE 0 END, CASE WHEN {turn} < 5 THEN 3 ELSE 0 END, 0, "
            f"CASE WHEN {ran} THEN {w.numbered('node-', w.rest('i', NODES))} END, CASE WHEN {ran} THEN i ELSE 0 END, "
            f"{at}, {at}, CASE WHEN {ran} THEN {at} + 20000 END, {at} + 20000 + {took}, "
            f"CASE WHEN {turn} < 5 THEN 'ConnectionError' END, "
            f"CASE WHEN {turn} < 5 THEN 'the other side closed the connection while reading the header of page 3' END, "
            f"NULL, CASE WHEN {turn} >= 998 THEN i - 1 END, 1, "
            f"CASE WHEN {turn} >= 10 AND {turn} < 25 THEN 'the run before it was still running' END, NULL "
            f"FROM {w.series(first, last)}"
        )

    def _live(self, first: int, last: int, state: str, waits_for: str | None) -> None:
        w, job, now = self.w, self._job("i"), self._until_us
        runs = state == "running"
        self._execute(
            f"{w.into('run', _RUN)} SELECT i, {job}, 'manual', '{state}', {_quoted(waits_for)}, "
            f"NULL, NULL, NULL, NULL, 1, {_quoted(json.dumps({'customer': 7}))}, {_quoted('5f' * 32)}, "
            f"'user:ann', 0, 'default', "
            f"{w.text(_quoted('key-'), w.rest('i', 50)) if waits_for == 'key' or runs else 'NULL'}, "
            f"{int(runs)}, 0, 0, {w.numbered('node-', w.rest('i', LIVING)) if runs else 'NULL'}, "
            f"{'i' if runs else '0'}, {now} - 600000000, {now} - 600000000 + (i - {first}) * 1000000, "
            f"{f'{now} - 300000000' if runs else 'NULL'}, NULL, NULL, NULL, "
            f"NULL, NULL, 1, NULL, NULL FROM {w.series(first, last)}"
        )

    def _attempts(self, first: int, last: int) -> None:
        columns = "run_id, number, node, token, started_at, ended_at, took_us, outcome, error_code, error"
        select_ = (
            "SELECT r.id, {n}, r.node, r.token, r.started_at, r.ended_at, r.ended_at - r.started_at, {outcome}, "
            f"r.error_code, r.error FROM fencepost_run r WHERE r.id BETWEEN {first} AND {last} AND {{which}}"
        )
        for n, outcome, which in (
            (1, "CASE WHEN r.attempts = 1 THEN 'succeeded' ELSE 'failed' END", "r.attempts >= 1 AND r.ended_at > 0"),
            (2, "'failed'", "r.attempts >= 2 AND r.ended_at > 0"),
            (3, "'failed'", "r.attempts >= 3 AND r.ended_at > 0"),
        ):
            into = self.w.into("attempt", columns)
            self._execute(f"{into} {select_.format(n=n, outcome=outcome, which=which)}")

    def _notes(self, first: int, last: int, *, start: int, step: int, offset: int = 0) -> None:
        w, turn = self.w, self.w.rest("i", 50)
        what = (
            f"CASE WHEN {w.rest('i', 20_011)} = 3 THEN 'refused write' WHEN {turn} < 20 THEN 'run triggered' "
            f"WHEN {turn} < 40 THEN 'run retried' WHEN {turn} < 45 THEN 'schedule paused' ELSE 'sla missed' END"
        )
        self._execute(
            f"{w.into('journal', 'id, at, what, job, run_id, by, reason')} "
            f"SELECT i, {start} + (i - {offset}) * {step}, {what}, {self._job('i')}, i * 20, 'user:ann', "
            f"'as agreed with the people of the other side' FROM {w.series(first, last)}"
        )

    def _audit(self, count: int) -> None:
        w, step = self.w, DAYS * DAY_US // count
        act = f"CASE WHEN {w.rest('i', 50_021)} = 7 THEN 'prune audit' WHEN {w.rest('i', 2)} = 0 THEN 'run retried' "
        act += "ELSE 'run triggered' END"
        entry = {"act": "run retried", "at": 1, "who": "user:ann", "how": "login", "outcome": "done", "reason": "x"}
        self._execute(
            f"{w.into('audit', 'n, entry, prev, hash, at, who, act, job, run_id')} SELECT i, "
            f"{_quoted(json.dumps(entry))}, {_quoted('0' * 64)}, {_quoted('0' * 64)}, "
            f"{self._until_us - DAYS * DAY_US} + i * {step}, "
            f"{w.text(_quoted('user:'), w.rest('i', 200))}, {act}, {self._job('i')}, i * 20 FROM {w.series(1, count)}"
        )
        self._execute(f"UPDATE fencepost_audit_head SET n = {count}, hash = {_quoted('0' * 64)}")

    def _searches(self, runs: int) -> None:
        w = self.w
        self._execute(
            f"{w.into('run_search', 'name, value, run_id')} "
            f"SELECT 'customer', {w.text(w.rest('i * 10', 5000), _quoted(''))}, i * 10 "
            f"FROM {w.series(1, max(runs // 10, 1))}"
        )

    def _few(self) -> None:
        """Make jobs, schedules and nodes."""
        w, now = self.w, self._until_us
        job = w.numbered("job-", "i - 1")
        self._execute(
            f"{w.into('job', 'name, type, policy, signature, doc, generation, seen_at')} SELECT {job}, 'scheduled', "
            f"{_quoted(POLICY)}, {_quoted(SIGNATURE)}, 'Settle what is open.', 1, {now} FROM {w.series(1, JOBS)}"
        )
        columns = "id, job, spec, params, origin, generation, planned_through, next_due_at, created_at, updated_at"
        self._execute(
            f"{w.into('schedule', columns)} SELECT {job}, {job}, {_quoted(SPEC)}, '{{}}', 'code', 1, {now}, "
            f"{now} + 86400000000 * 365, {now} - {DAYS * DAY_US}, {now} FROM {w.series(1, JOBS)}"
        )
        names = json.dumps([f"job-{number:04}" for number in range(JOBS)])
        node = w.numbered("node-", "i - 1")
        columns = "id, name, token, generation, version, slots, queues, jobs, started_at, left_at"
        self._execute(
            f"{w.into('node', columns)} SELECT {node}, {node}, i, 1, '1.0', 100, "
            f"{_quoted(json.dumps(['default', 'slow']))}, {_quoted(names)}, "
            f"{now} - 3600000000, CASE WHEN i > {LIVING} THEN {now} END FROM {w.series(1, NODES)}"
        )

    def _job(self, number: str) -> str:
        """Return the job of a run: a tenth of all runs are of the first, very few of the last."""
        share = f"({self.w.rest(f'({number}) * 2654435761', 4294967296)} / 4294967296.0)"
        return self.w.numbered("job-", self.w.whole(f"{JOBS} * {share} * {share} * {share}"))

    def _tell_sequences(self, top: int, notes: int) -> None:
        if self.w.name == "postgresql":
            for table, value in (("run", top), ("journal", notes)):
                self._execute(f"SELECT setval(pg_get_serial_sequence('fencepost_{table}', 'id'), {value})")


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"
