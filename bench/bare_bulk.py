"""What a programmer would write by hand: rows read by their key, changed, and written in chunks, with psycopg alone.

    python bench/bare_bulk.py URL copy|unnest|executemany ROWS CHUNK

It is as fast as it could be made without threads: two connections, one statement for a page, nothing looked up, one
transaction for a chunk. It has no checkpoint, no fence, no counts, no retries, and does not notice what fails.
Prints how long it took, in seconds, without starting and connecting.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

READ = "SELECT id, amount FROM source WHERE id <= %s AND id > %s ORDER BY id LIMIT %s"
Rows = list[tuple[int, int]]


def copied(connection: psycopg.Connection[Any], items: Rows) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY effect (id, amount) FROM STDIN") as sink:
        for item in items:
            sink.write_row(item)


def unnested(connection: psycopg.Connection[Any], items: Rows) -> None:
    ids, amounts = [item[0] for item in items], [item[1] for item in items]
    insert = "INSERT INTO effect (id, amount) SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
    connection.execute(insert, (ids, amounts))


def executed(connection: psycopg.Connection[Any], items: Rows) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO effect (id, amount) VALUES (%s, %s)", items)


WAYS: dict[str, Callable[[psycopg.Connection[Any], Rows], None]] = {
    "copy": copied,
    "unnest": unnested,
    "executemany": executed,
}


def work(url: str, way: str, rows: int, chunk: int) -> float:
    """Do it, and return how long it took."""
    write, after = WAYS[way], 0
    with psycopg.connect(url, autocommit=True) as source, psycopg.connect(url, autocommit=True) as target:
        began_at = time.perf_counter()
        while page := source.execute(READ, (rows, after, chunk)).fetchall():
            items = [(key, amount + 1) for key, amount in page]
            with target.transaction():
                write(target, items)
            after = page[-1][0]
        return time.perf_counter() - began_at


if __name__ == "__main__":
    print(work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
