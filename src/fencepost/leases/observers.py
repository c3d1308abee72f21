"""Passes every event to every observer. The failure of one is reported to the others and does not affect them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fencepost.core.events import Event, Observer, What


class Observers:
    """A list of observers that is called like a single one."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers: list[Observer] = []
        self._wanting: list[Callable[[What], bool] | None] = []
        for observer in observers:
            self.add(observer)

    def add(self, observer: Observer) -> None:
        """Add an observer. It is called for every event, on the thread that emits it, and must not block."""
        self._observers.append(observer)
        self._wanting.append(getattr(observer, "wants", None))

    def wants(self, what: What) -> bool:
        """Whether any observer handles such an event. All do, except a log with a higher level."""
        return any(wants is None or wants(what) for wants in self._wanting)

    def __call__(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - an observer must never break what it observes
                self._report(observer, error)

    def _report(self, failed: Observer, error: Exception) -> None:
        event = Event(What.OBSERVER_FAILED, reason=f"{failed!r} raised {error!r}")
        for observer in self._observers:
            if observer is not failed:
                try:
                    observer(event)
                except Exception:  # noqa: BLE001, S112 - there is no one left to report it to
                    continue
