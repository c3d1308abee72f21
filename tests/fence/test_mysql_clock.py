"""What the clock of MySQL says of keys and fences, in a session whose local clock shows an hour twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.fence.effect_statements import EffectStatements
from fencepost.fence.target import target_of
from fencepost.fence.writer import current_writer
from testbed.mariadb import MariaDB
from tests.servers import RUNTIME

MINUTE_S = 60
ZONE = 4711


@pytest.fixture(params=[-10 * MINUTE_S, 10 * MINUTE_S], ids=["the second time", "the first time"])
def connection(mariadb: MariaDB, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session in a zone whose clock is put back by an hour ten minutes ago, or in ten minutes."""
    put_back_at = RUNTIME.wall_us() // 1_000_000 + request.param
    name = f"Test/Fold{request.param}"
    zone = ZONE + request.param
    with mariadb.client() as client, client.cursor() as cursor:
        for table, values in (
            ("time_zone", (zone, "N")),
            ("time_zone_name", (name, zone)),
            ("time_zone_transition_type", (zone, 0, 3600, 1, "DST")),
            ("time_zone_transition_type", (zone, 1, 0, 0, "STD")),
            ("time_zone_transition", (zone, put_back_at - 10_000_000, 0)),
            ("time_zone_transition", (zone, put_back_at, 1)),
        ):
            marks = ", ".join(["%s"] * len(values))
            cursor.execute(f"REPLACE INTO mysql.{table} VALUES ({marks})", values)
        client.commit()
    with mariadb.client() as opened:
        with opened.cursor() as cursor:
            cursor.execute("SET time_zone = %s", (name,))
        yield opened


def test_it_is_the_time_and_not_an_hour_off(connection: Any) -> None:
    landing = EffectStatements(connection, current_writer("e_", None))
    [(kept_us,)] = landing.execute(f"SELECT {landing.now}").rows
    for found_us in (kept_us, target_of(connection).now_us()):
        assert abs(found_us - RUNTIME.wall_us()) < MINUTE_S * 1_000_000
