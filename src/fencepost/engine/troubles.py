"""What goes wrong in the loops of a node, reported once per trouble and not at every try.

When the ledger does not answer, all loops find out, one after the other, each in its own words, and again at every try.
That is one trouble: it is reported when the first loop meets it, and its end when the last one is well again. Anything
else that a loop raises is a trouble of that loop's own, by the kind of the error: words may have a number in them that
is another one each time.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.events import Event, What
from fencepost.core.runtime import Runtime
from fencepost.core.texts import told
from fencepost.errors import FencepostError, LedgerUnavailable, StoreUnavailable

_UNANSWERED = "it does not answer"


class Troubles:
    """Which loops are in trouble, and of what kind."""

    def __init__(self, runtime: Runtime, *, node: Callable[[], str], emit: Callable[[Event], None]) -> None:
        self._node = node
        self._emit = emit
        self._lock = runtime.lock()  # loops are tasks of their own
        self._kinds: dict[str, set[str]] = {}  # by loop

    def met(self, loop: str, error: BaseException) -> None:
        """Report what a loop has met, unless it is known."""
        is_unanswered = isinstance(error, LedgerUnavailable | StoreUnavailable)
        kind = _UNANSWERED if is_unanswered else type(error).__name__
        with self._lock:
            kinds = self._kinds.setdefault(loop, set())
            is_known = kind in kinds or (is_unanswered and self._is_unanswered())
            kinds.add(kind)
        if not is_known:
            named = "" if isinstance(error, FencepostError) else f"{type(error).__name__}: "
            text = f"{loop}: {named}{told(error) or repr(error)}"
            self._emit(Event(What.LEDGER_TROUBLE, node=self._node(), reason=text))

    def over(self, loop: str) -> None:
        """Report that a loop is well again, once no other has the same trouble."""
        if loop not in self._kinds:  # as nearly always
            return
        with self._lock:
            kinds = self._kinds.pop(loop, set())
            is_last = _UNANSWERED not in kinds or not self._is_unanswered()
        if kinds - {_UNANSWERED} or (kinds and is_last):
            self._emit(Event(What.LEDGER_BACK, node=self._node(), reason=loop))

    def _is_unanswered(self) -> bool:
        return any(_UNANSWERED in kinds for kinds in self._kinds.values())
