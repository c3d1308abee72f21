"""Bulk jobs whose rename for good is cut off, or refused: nothing lands twice, whatever is done next."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy

from fencepost import App, Skip
from fencepost.app import renaming
from fencepost.app.composing import publish
from fencepost.effects.renaming import move_effects
from fencepost.errors import LedgerRefused, NoSuchJob
from fencepost.ledger import moving
from fencepost.ledger.begun_renames import begun_renames
from tests.access.scene import set_run
from tests.bulk.orders import Shop, again, hand, kind, on, place, played, settling, shop

__all__ = ["kind", "place", "shop"]

_OWN_AND_OTHER = on(("sqlite", "own"), ("sqlite", "other"))


class _HalfDone:
    """A bulk job that has settled orders, and has failed at the last ten; whoever repeats it settles these."""

    def __init__(self, shop: Shop) -> None:
        shop.fill(range(1, 41))
        shop.change("DROP TABLE settled")
        shop.change("CREATE TABLE settled (id INTEGER, amount INTEGER)")  # where an order may be settled twice
        self.shop, self.is_mended = shop, False
        self.row = played(shop, self.declared("nightly"))
        publish(shop.app)
        self.is_mended = True

    def declared(self, name: str, app: App | None = None) -> Any:
        return self.shop.bulk(settling(self._process), name=name, app=app, retries=0, skip_limit=1)

    def _process(self, order: Any) -> Any:
        if order.id in (7, 30) and not self.is_mended:
            raise (Skip if order.id == 7 else ValueError)("not yet")
        return order

    def rename(self, old: str, new: str) -> Any:
        url = self.shop.engine.url.render_as_string(hide_password=False)
        effects = [] if self.shop.is_own else [f"{url}?prefix={self.shop.app.ledger.tables.prefix}"]
        return self.shop.app.operations.rename_job(old, new, by="ann", effects=effects)

    def repeated(self, name: str) -> Any:
        """Repeat the run by a deploy with this name for the job."""
        app = self.shop.another_app()
        self.declared(name, app)
        publish(app)
        try:
            return again(self.shop, self.row, app)
        finally:
            app.close()

    def names(self) -> set[str]:
        return {name.partition("@")[0].removeprefix("bulk:") for name in self.shop.marks()}

    def settled_once(self) -> bool:
        return self.shop.settled() == [each for each in range(1, 41) if each != 7]


@pytest.fixture
def half_done(shop: Shop) -> _HalfDone:
    return _HalfDone(shop)


@pytest.fixture
def cut_off(half_done: _HalfDone, monkeypatch: pytest.MonkeyPatch) -> _HalfDone:
    """Its rename to setle was cut off when the checkpoints had been moved."""

    def cut(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(moving, "rename", cut)
        with pytest.raises(KeyboardInterrupt):
            half_done.rename("nightly", "setle")
    assert half_done.names() == {"setle"}
    return half_done


@on(("sqlite", "own"), ("postgresql", "other"), ("mysql", "own"))
def test_rename_that_was_cut_off_is_completed_before_the_job_gets_the_name_that_was_meant(cut_off: _HalfDone) -> None:
    for new in ("settle", "setl"):
        with pytest.raises(LedgerRefused, match=r"is being renamed to 'setle'.*fencepost jobs rename nightly setle"):
            cut_off.rename("nightly", new)
    assert cut_off.names() == {"setle"}
    cut_off.rename("nightly", "setle")
    cut_off.rename("setle", "settle")
    assert begun_renames(cut_off.shop.app.ledger) == []
    row = cut_off.repeated("settle")
    assert (row.job, row.state, cut_off.settled_once()) == ("settle", "succeeded", True)


@_OWN_AND_OTHER
@pytest.mark.parametrize("name", ["nightly", "setle"])
def test_run_under_either_name_does_nothing_until_the_rename_is_completed(cut_off: _HalfDone, name: str) -> None:
    shop, app = cut_off.shop, cut_off.shop.another_app()
    landed, declared = shop.settled(), cut_off.declared(name, app)
    publish(app)
    asked = [app.enqueue(declared.name), app.enqueue(declared.replay_name, params={"letters": [], "upto": 100})]
    with hand(shop, app) as one:
        rows = [one.play(each.run_id) for each in asked]
        with pytest.raises(LedgerRefused, match="fencepost jobs rename nightly setle"):
            app.operations.retry(rows[0].id, by="ann")
    app.close()
    for row in rows:
        assert row.state == "dead"
        assert "Complete it first: fencepost jobs rename nightly setle" in str(row.error)
        assert f"fencepost retry {row.id}" in str(row.error)
    assert (shop.settled(), cut_off.names()) == (landed, {"setle"})
    cut_off.rename("nightly", "setle")
    assert cut_off.repeated("setle").state == "succeeded"
    assert cut_off.settled_once()


@on(("sqlite", "other"))
def test_rename_that_was_cut_off_between_two_databases_is_completed(
    half_done: _HalfDone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own_alone(database: Any, ledger: Any, found: Any) -> Any:
        if database is not ledger:
            raise KeyboardInterrupt
        return move_effects(database, ledger, found)

    with monkeypatch.context() as patched:
        patched.setattr(renaming, "move_effects", own_alone)
        with pytest.raises(KeyboardInterrupt):
            half_done.rename("nightly", "settle")
    assert half_done.names() == {"nightly"}
    with pytest.raises(LedgerRefused, match="is being renamed to 'settle'"):
        half_done.repeated("nightly")
    half_done.rename("nightly", "settle")
    row = half_done.repeated("settle")
    assert (row.job, row.state, half_done.settled_once()) == ("settle", "succeeded", True)


def test_part_does_nothing_while_its_job_is_renamed(cut_off: _HalfDone) -> None:
    part = {"parent": cut_off.row.id, "step": "main", "number": 0, "instance": "x", "values": {}, "key": "k"}
    app = cut_off.shop.another_app()
    cut_off.declared("nightly", app)
    with hand(cut_off.shop, app) as one:
        row = one.play(app.enqueue("nightly/part", params=part).run_id)
    app.close()
    assert (row.state, "is being renamed to 'setle'" in str(row.error)) == ("dead", True)


@_OWN_AND_OTHER
def test_rename_that_is_refused_has_moved_nothing(half_done: _HalfDone) -> None:
    app = half_done.shop.app
    other = app.enqueue("nightly").run_id
    set_run(app, other, state="running", node="x" * 32)
    with pytest.raises(LedgerRefused, match=f"run {other} of job 'nightly' has not ended"):
        half_done.rename("nightly", "settle")
    assert (half_done.names(), begun_renames(app.ledger), app.operations.audit.entries()) == ({"nightly"}, [], [])
    set_run(app, other, state="cancelled", node=None)
    row = half_done.repeated("nightly")
    assert (row.job, row.state, half_done.settled_once()) == ("nightly", "succeeded", True)


@on(("sqlite", "other"))
def test_refusal_of_the_second_database_comes_before_the_first_is_changed(half_done: _HalfDone) -> None:
    shop = half_done.shop
    table, [name, *_] = shop.effects_table("checkpoint"), sorted(shop.marks())
    taken = name.replace("bulk:nightly@", "bulk:settle@")
    shop.change(
        f"INSERT INTO {table} (name, position, token, shape, updated_at) "
        f"SELECT '{taken}', position, token, shape, updated_at FROM {table} WHERE name = '{name}'"
    )
    own = sqlalchemy.create_engine(f"sqlite:///{shop.app.ledger.url.path}")
    with own.begin() as connection:
        query = f"SELECT name FROM {shop.app.ledger.tables.name('checkpoint')}"
        moved = name.replace("run-", "also-")
        columns = "(name, position, token, shape, updated_at)"
        connection.exec_driver_sql(f"INSERT INTO {query[17:]} {columns} VALUES ('{moved}', '{{}}', 1, 'x', 1)")
        before = connection.exec_driver_sql(query).fetchall()
    with pytest.raises(LedgerRefused, match="has begun the same work"):
        half_done.rename("nightly", "settle")
    with own.begin() as connection:
        assert connection.exec_driver_sql(query).fetchall() == before
    own.dispose()
    assert begun_renames(shop.app.ledger) == []


@_OWN_AND_OTHER
def test_checkpoints_that_an_earlier_version_left_under_a_name_without_a_job_join_the_job(cut_off: _HalfDone) -> None:
    ledger = cut_off.shop.app.ledger
    table = ledger.tables.operating["acknowledged"]
    ledger.write(lambda cursor: ledger.change(cursor, table.delete()))  # which did not know of it
    moving.rename(ledger, moving.renaming_of(ledger, "nightly", "settle"), by="ann")
    with pytest.raises(NoSuchJob):
        cut_off.rename("setl", "settle")
    assert cut_off.rename("setle", "settle").checkpoints > 0
    row = cut_off.repeated("settle")
    assert (row.job, row.state, cut_off.settled_once()) == ("settle", "succeeded", True)
