"""Hands every event to every observer; one that fails is named once per failure and disturbs nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fencepost.core.events import Event, Observer, What


class Observers:
    """A list of observers that can be called like one."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers: list[Observer] = []
        self._wanting: list[Callable[[What], bool] | None] = []
        for observer in observers:
            self.add(observer)

    def add(self, observer: Observer) -> None:
        """Call `observer` for every event from now on, on the thread where it happens. It must not block."""
        self._observers.append(observer)
        self._wanting.append(getattr(observer, "wants", None))

    def wants(self, what: What) -> bool:
        """Whether one of them would take notice of such an event: all do, but for a log with a higher level."""
        return any(wants is None or wants(what) for wants in self._wanting)

    def __call__(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - watching must never break what is watched
                self._report(observer, error)

    def _report(self, failed: Observer, error: Exception) -> None:
        event = Event(What.OBSERVER_FAILED, reason=f"{failed!r} raised {error!r}")
        for observer in self._observers:
            if observer is not failed:
                try:
                    observer(event)
                except Exception:  # noqa: BLE001, S112 - nobody is left to tell
                    continue
