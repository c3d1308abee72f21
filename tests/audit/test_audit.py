"""Smoke versions of ``python -m tests.audit``, on SQLite."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.audit.cutting import acts, cut
from tests.audit.tampering import KINDS, Tampered
from tests.audit.writers import played

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def fresh(migrated_file: Path, tmp_path: Path) -> Callable[[], str]:
    """Return what makes ledgers with empty tables."""
    numbers = count()

    def make() -> str:
        file = tmp_path / f"{next(numbers)}.db"
        shutil.copyfile(migrated_file, file)
        return f"sqlite:///{file}"

    return make


def test_writers_at_once_make_one_chain_with_every_act_in_it(kind, fresh):
    done = played(fresh(), writers=8, seconds=1.0, processes=False)
    assert (done.forks, done.breaks) == (0, ())
    assert 0 <= done.entries - done.acts <= done.unsure
    assert done.acts > 20


def test_random_changes_of_the_rows_are_found(kind, ledger):
    chain = Tampered(ledger)
    assert chain.is_intact()
    assert [(seed, name) for seed in range(8 * len(KINDS)) if (name := chain.unseen(seed))] == []
    assert chain.is_intact()


@pytest.mark.parametrize("name", ["trigger", "cancel", "schedules.put", "access.give"])
def test_act_that_is_cut_leaves_both_itself_and_its_entry_or_neither(kind, name, fresh):
    done = cut(name, fresh)
    assert done.wrong == []
    assert done.both >= 1
    assert done.neither >= 5


def test_every_act_is_among_those_that_are_cut(kind):
    assert {"trigger", "retry", "cancel", "schedules.pause", "audit.prune", "access.remove_account"} <= set(acts())
