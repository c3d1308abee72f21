"""Signals before the program of ``fencepost exec`` has started."""

import weakref

import pytest

from fencepost.cli.signal_relay import SignalRelay


class Thing:
    """Something that is looked after by a callback, as Python's imports do."""


def test_a_signal_in_a_callback_that_swallows_it_is_remembered_without_a_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    relay, thing = SignalRelay(), Thing()
    watched = weakref.ref(thing, lambda _: relay.receive(15))
    with relay.swallowed_quietly():
        del thing
    assert watched() is None
    assert (relay.ended_by, relay.is_active(), capfd.readouterr().err) == (15, False, "")


def test_other_errors_that_python_swallows_are_still_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    relay, thing, reported = SignalRelay(), Thing(), []
    monkeypatch.setattr("sys.unraisablehook", lambda what: reported.append(what.exc_type))
    watched = weakref.ref(thing, lambda _: 1 / 0)
    with relay.swallowed_quietly():
        del thing
    assert watched() is None
    assert reported == [ZeroDivisionError]
