"""What is loaded is not collected, and what an application sets for itself stays set."""

import gc
from collections.abc import Iterator

import pytest

from fencepost.threaded.collection import loading, one_command


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """Collect in the tests after this one as in those before."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


def test_what_is_loaded_is_left_out_of_collections_from_then_on():
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with loading():
        assert gc.get_threshold()[0] > 1_000_000
        loaded = [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= frozen + len(loaded)
    assert gc.get_threshold() == before


def test_collecting_goes_on_if_loading_fails():
    before = gc.get_threshold()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.get_threshold() == before


def test_what_an_application_sets_while_it_is_loaded_stays_set():
    with loading():
        gc.set_threshold(500, 5, 5)
        gc.disable()
    assert gc.get_threshold() == (500, 5, 5)
    assert not gc.isenabled()


def test_a_command_collects_less_often_and_not_at_its_end():
    before, frozen = gc.get_threshold()[0], gc.get_freeze_count()
    with one_command():
        assert gc.isenabled()
        assert gc.get_threshold()[0] > before
        made = [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= frozen + len(made)
