"""Errors in the loops of a node, reported once per problem and not at every try.

When the ledger does not answer, each loop gets its own error, and again at every try. That is one problem: it is
reported when the first loop has it, and its end when the last loop succeeds again. Any other error is a problem of the
loop that raised it, identified by the type of the error, because the message may contain a number that changes.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.core.events import Event, What
from fencepost.core.runtime import Runtime
from fencepost.core.texts import error_text
from fencepost.errors import FencepostError, LedgerUnavailable, StoreUnavailable

_UNANSWERED = "it does not answer"


class Troubles:
    """Which loops have errors, and of which kind."""

    def __init__(self, runtime: Runtime, *, node: Callable[[], str], emit: Callable[[Event], None]) -> None:
        self._node = node
        self._emit = emit
        self._lock = runtime.lock()  # each loop has its own task
        self._kinds: dict[str, set[str]] = {}  # by loop

    def met(self, loop: str, error: BaseException) -> None:
        """Report an error of a loop, unless it is known."""
        is_unanswered = isinstance(error, LedgerUnavailable | StoreUnavailable)
        kind = _UNANSWERED if is_unanswered else type(error).__name__
        with self._lock:
            kinds = self._kinds.setdefault(loop, set())
            is_known = kind in kinds or (is_unanswered and self._is_unanswered())
            kinds.add(kind)
        if not is_known:
            named = "" if isinstance(error, FencepostError) else f"{type(error).__name__}: "
            text = f"{loop}: {named}{error_text(error) or repr(error)}"
            self._emit(Event(What.LEDGER_TROUBLE, node=self._node(), reason=text))

    def over(self, loop: str) -> None:
        """Report that a loop works again, once no other loop has the same problem."""
        if loop not in self._kinds:  # the usual case
            return
        with self._lock:
            kinds = self._kinds.pop(loop, set())
            is_last = _UNANSWERED not in kinds or not self._is_unanswered()
        if kinds - {_UNANSWERED} or (kinds and is_last):
            self._emit(Event(What.LEDGER_BACK, node=self._node(), reason=loop))

    def _is_unanswered(self) -> bool:
        return any(_UNANSWERED in kinds for kinds in self._kinds.values())
