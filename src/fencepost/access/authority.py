"""What all parts of `Authorized` share: the operations within the caller's scope, and a record of what was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fencepost.access.identity import Identity
from fencepost.access.refusals import Refusals
from fencepost.app.operations import Operations
from fencepost.core.rights import HumanAct, Scope
from fencepost.errors import NotAllowed, NotInLedger

T = TypeVar("T")

CALLER = ""  # what is passed as `by`: who acts is the caller of the scope, whatever is said here


class Authority:
    """A caller, and the operations that it reaches."""

    def __init__(self, operations: Operations, identity: Identity, refusals: Refusals) -> None:
        """Reach `operations` as `identity`."""
        self.identity = identity
        self._operations = operations
        self._refusals = refusals

    def looks(self, call: Callable[[Operations], T], act: HumanAct = HumanAct.LOOK, **asked: Any) -> T:
        """Ask something, within what the caller could see up to a second ago.

        `act` is what the caller asks it for. If that is more than looking, it is a try at that act: what is not there
        is recorded, too, as `does` would.
        """
        try:
            return call(self._operations.within(self.identity.scope()))
        except (NotAllowed, NotInLedger) as error:
            if isinstance(error, NotAllowed) or act is not HumanAct.LOOK:
                self._refusals.record(self.identity.caller, act, error, asked)
            raise

    def acts(self, act: HumanAct, reason: str | None, call: Callable[[Operations], T], **asked: Any) -> T:
        """Do something, within what the caller may do now. `asked` is what the request names, for the record."""
        return self.does(act, reason, lambda scope: call(self._operations.within(scope)), **asked)

    def does(self, act: HumanAct, reason: str | None, call: Callable[[Scope], T], **asked: Any) -> T:
        """Do something under the caller's scope, and record it if it was refused.

        Without a reason, the scope refuses what the caller's role may not do without one: where the right to act is
        checked, and not before, so that what may not be seen is answered like what does not exist.

        What does not exist is recorded like what may not be seen: neither the answer nor the time shows which it was.
        """
        scope = self.identity.scope(is_fresh=True).saying(reason)
        try:
            return call(scope)
        except (NotAllowed, NotInLedger) as error:
            self._refusals.record(self.identity.caller, act, error, asked)
            raise
