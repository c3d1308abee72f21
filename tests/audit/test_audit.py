"""Smoke versions of ``python -m tests.audit``, on SQLite."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from fencepost.access.rights import RIGHTS
from fencepost.core.noted import DONE_BY_PEOPLE
from fencepost.core.rights import HumanAct
from fencepost.errors import LedgerRefused, LedgerUnavailable
from fencepost.ledger.begun_renames import begun_renames
from tests.access.scene import CASES, methods_of
from tests.audit.acts import ACTS, Act, only_looks
from tests.audit.cutting import WAYS, Cuts, Vacuous, cut, cut_act, cut_at, few
from tests.audit.stages import Stage, Stages, on_stages
from tests.audit.tampering import KINDS, Tampered
from tests.audit.writers import played

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture(scope="module")
def fresh(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Return what makes ledgers with empty tables."""
    numbers, folder = count(), tmp_path_factory.mktemp("audit")

    def make() -> str:
        file = folder / f"{next(numbers)}.db"
        shutil.copyfile(migrated_file, file)
        return f"sqlite:///{file}"

    return make


@pytest.fixture(scope="module")
def stages(fresh: Callable[[], str]) -> Iterator[Stages]:
    """Where all acts are cut."""
    with on_stages(fresh) as made:
        yield made


@pytest.fixture(scope="module")
def cut_once(stages: Stages) -> Callable[[str], Cuts]:
    """Return what cuts an act at a few statements, and only the first time."""
    return cache(lambda name: cut(name, stages, few))


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


@pytest.mark.parametrize("name", ACTS)
def test_act_that_is_cut_leaves_both_itself_and_its_entry_or_neither(kind, name, cut_once):
    done = cut_once(name)
    assert done.wrong == []
    assert done.both >= 1
    assert done.neither >= 1


def test_acts_of_several_transactions_say_so_before_the_first_change(kind, cut_once):
    assert {name for name in ACTS if cut_once(name).first} - {"letters.drop"} == {  # which is mostly cut later
        *("rename_job", "forget_job", "forget_job in batches", "restored.accept", "restored.as_copy"),
        *("locks.release", "locks.reset", "letters.drop of some", "bulk.forget"),
    }


@pytest.mark.parametrize("way", WAYS)
def test_rename_that_is_cut_anywhere_is_completed_or_has_not_begun(kind, way, stages):
    act, stage = ACTS["rename_job"], stages.scene
    found: dict[bool, int] = {True: 0, False: 0}
    with act.in_small():
        for number in count(1 if way is WAYS[0] else 4, 7):
            stage.put_back(stage.first)
            try:
                with cut_at(number, way) as points:
                    stage.root().rename_job(stage.mine.job, "renamed")
            except LedgerUnavailable:
                stage.forget()
            if not points.was_reached:
                break
            is_begun = bool(begun_renames(stage.app.ledger))
            found[is_begun] += 1
            if is_begun:
                for other in ("another", "renamed"):  # the first one is refused, the second goes on
                    with pytest.raises(LedgerRefused) if other == "another" else nullcontext():
                        stage.root().rename_job(stage.mine.job, other)
            elif stage.mine.job in {each.name for each in stage.app.operations.jobs()}:
                stage.root().rename_job(stage.mine.job, "another")
            _assert_is_all_renamed(stage)
    assert min(found.values()) > 1


def _assert_is_all_renamed(stage: Stage) -> None:
    content, place = stage.databases.read(), (0, "run")
    names = {row[content.columns[place].index("job")] for row in content.rows[place]}
    assert stage.mine.job not in names | {each.name for each in stage.app.operations.jobs()}
    assert len(names & {"renamed", "another"}) == 1
    assert begun_renames(stage.app.ledger) == []


def test_whatever_people_do_is_among_the_acts_that_are_cut(kind, cut_once):
    said = set[str]().union(*(cut_once(name).said for name in ACTS))
    assert DONE_BY_PEOPLE - said == set()
    assert {HumanAct.CHANGE_ACCESS, HumanAct.PRUNE_AUDIT, HumanAct.RELEASE_LOCK} <= said


def test_every_method_is_cut_or_changes_nothing(kind, stages):
    looks = {name for name in RIGHTS if only_looks(name)}
    assert looks | {act.method for act in ACTS.values()} == methods_of(stages.scene.root()) == set(RIGHTS)
    for name in sorted(looks):
        stage = Act(name, CASES[name]).stage(stages)
        stage.put_back(stage.first)
        CASES[name](stage.root(), stage.mine)
        after = stage.databases.read()
        assert (name, after.changed(stage.first), after.entries[len(stage.first.entries) :]) == (name, set(), [])


def test_act_that_does_nothing_is_an_error_of_the_play(kind, stages):
    with pytest.raises(Vacuous, match="has ended"):
        cut_act(Act("cancel", CASES["cancel"]), stages, few, name="cancel of a run that has ended")
    with pytest.raises(Vacuous, match="it changes nothing; it has no entry"):
        cut_act(Act("trigger", CASES["runs"]), stages, few, name="a look")


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("rename_job", "fencepost.ledger.begun_renames.begin"),
        ("forget_job in batches", "fencepost.ledger.removing.begin"),
        ("restored.as_copy", "fencepost.ledger.restoring.begin"),
    ],
)
def test_change_before_the_first_entry_is_found(kind, name, entry, stages, monkeypatch):
    def without_entry(database, what, *abouts, first=lambda _, number: number):
        return database.write(lambda cursor: first(cursor, 1))

    monkeypatch.setattr(entry, without_entry)
    assert any("it was done, and has no entry" in each for each in cut(name, stages, few).wrong)
