"""The lock register is linearizable: for each name, one order of all calls explains every answer.

The register has the holder of a name and its token. It may remove a holder whose session was not renewed for a ttl,
counted at the earliest from when the renewal was sent, but it never has to. A call without an answer (a lost reply, a
crash) may take effect at any later moment, or never.

An `acquire` has its grant, and its answer has the token. If it was refused, ``detail["why"]`` is "held", "done" or
"lost", and for "held" ``detail["held_by"]`` is the current grant. `renew`, `release` and `revoke` have their grant. A
renewal without a grant is for its whole session, and has ``detail["gone"]``. `open` and `close` have a session. What is
not recorded is not checked.

- ``notes["store_slack_s"]``: how much earlier than a ttl a grant may expire, by the store's clock
- ``notes["ends_with_connection"]``: grants also end with the process that has them (advisory locks)
- a fault of kind "forget" or "promotion" may free every name, or bring an earlier holder back
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.proof.calls import NEVER, Call, calls, faults
from fencepost.proof.evidence import Evidence, Violation
from fencepost.proof.history import EntryKind
from fencepost.proof.linearizing import StuckOrder, explain

NAME = "lock register"
DEFAULT_SLACK_S = 0.05  # must be less than the margin of a ttl (a tenth), or a grant that ends too early is overlooked
FORGETTING = frozenset({"forget", "promotion"})
_ENDING = frozenset({"release", "revoke"})


class RegisterState(NamedTuple):
    """The state of one name. `grant` empty: it is free; None: the store lost its data, so it may be anything.

    `since` is the last time at which this was certain, `expires_at` the earliest time at which it may expire. `used`
    has the unanswered calls that have taken effect. `is_closed`: kept closed after a release.
    """

    grant: str | None = ""
    session: str = ""
    token: int = 0
    since: float = 0.0
    expires_at: float = 0.0
    used: frozenset[int] = frozenset()
    is_closed: bool = False


class _Name:
    """The model of one name's register."""

    def __init__(self, evidence: Evidence, own: list[Call], sessions: dict[str, list[Call]]) -> None:
        slack_s = float(evidence.notes.get("store_slack_s", DEFAULT_SLACK_S))
        self._ttl_s = max(0.0, evidence.timing.ttl_s - slack_s)
        self._is_durable = evidence.tokens_are_durable
        self._sessions = sessions
        self._forgot_at = sorted(entry.at for entry, kind in faults(evidence.history) if kind in FORGETTING)
        self._token_of = {call.grant: call.token for call in own if call.is_ok and call.what == "acquire"}
        self._unanswered = [call for call in own if call.what == "acquire" and call.is_unknown and call.grant]
        self._node_of = {call.grant: call.node for call in own if call.what == "acquire"}
        self._ends_at: dict[str, float] = {}
        for call in own:
            if call.is_unknown and call.what in _ENDING:
                self._ends_at[call.grant] = min(self._ends_at.get(call.grant, NEVER), call.sent_at)
        self._killed_at: dict[str, list[float]] = defaultdict(list)
        if evidence.notes.get("ends_with_connection"):
            for entry, _ in faults(evidence.history):
                self._killed_at[entry.node].append(entry.at)

    # -- one step of the order

    def step(self, held: RegisterState, call: Call, at: float, until: float) -> Iterator[tuple[RegisterState, float]]:
        """Return the possible states after `call`, and the earliest time of each."""
        for before, from_at in self._forgotten(held, at, until):
            for after, then in self._ways(before, call, from_at, until):
                if then <= until:
                    yield after, then

    def _ways(self, held: RegisterState, call: Call, at: float, until: float) -> Iterator[tuple[RegisterState, float]]:
        match call.what, call.kind:
            case "acquire", EntryKind.OK:
                return self._granted(held, call, at)
            case "acquire", _:
                return self._held_by_another(held, call, at, until)
            case "renew", EntryKind.OK:
                return self._renewed(held, call, at)
            case (("release" | "revoke"), EntryKind.OK):
                return self._ended(held, call, at)
            case "close", _:
                return self._closed(held, call, at)
        return self._is_not_held(held, call, at)

    def _granted(self, held: RegisterState, call: Call, at: float) -> Iterator[tuple[RegisterState, float]]:
        token = call.token or 0
        if held.grant == call.grant and held.token == token:
            yield held._replace(since=at), at
            return
        if self._is_durable and token <= held.token:
            return
        free, then = self._freed(held, at)
        yield self._taken(free, call, then), then

    def _held_by_another(
        self, held: RegisterState, call: Call, at: float, until: float
    ) -> Iterator[tuple[RegisterState, float]]:
        other = call.detail.get("held_by")
        if held.grant is None or (not held.grant and held.is_closed):
            yield held, at
        elif held.grant and held.grant != call.grant and other in (None, held.grant):
            yield held._replace(since=at), at
        for taken, then in self._taken_unseen(held, at, until):
            if taken.grant != call.grant and other in (None, taken.grant):
                yield taken, then

    def _renewed(self, held: RegisterState, call: Call, at: float) -> Iterator[tuple[RegisterState, float]]:
        if not call.grant:
            yield self._session_renewed(held, call, at)
            return
        for mine, then in self._mine(held, call, at):
            yield mine._replace(expires_at=max(mine.expires_at, then + self._ttl_s), since=then), then

    def _session_renewed(self, held: RegisterState, call: Call, at: float) -> tuple[RegisterState, float]:
        if held.grant and held.grant in call.detail.get("gone", ()):
            return self._freed(held, at)
        if held.grant and held.session == call.session:
            return held._replace(expires_at=max(held.expires_at, at + self._ttl_s), since=at), at
        return held, at

    def _ended(self, held: RegisterState, call: Call, at: float) -> Iterator[tuple[RegisterState, float]]:
        keep_s = float(call.detail.get("keep_for_s", 0.0))
        for mine, then in self._mine(held, call, at):
            yield _free(mine, then)._replace(is_closed=keep_s > 0, expires_at=then + keep_s), then

    def _closed(self, held: RegisterState, call: Call, at: float) -> Iterator[tuple[RegisterState, float]]:
        yield (_free(held, at) if held.grant and held.session == call.session else held), at

    def _is_not_held(self, held: RegisterState, call: Call, at: float) -> Iterator[tuple[RegisterState, float]]:
        """Explain a refused renewal, release or revocation: the grant was not the current one at that time."""
        is_this = held.grant == call.grant if call.grant else held.session == call.session
        yield self._freed(held, at) if held.grant and is_this else (held, at)

    # -- what may have happened meanwhile

    def _mine(self, held: RegisterState, call: Call, at: float) -> Iterator[tuple[RegisterState, float]]:
        """Return the states in which the caller holds the name, if they are possible."""
        if held.grant == call.grant:
            yield held, at
        elif held.grant is None:
            yield self._taken(held, call, at), at
        else:
            yield from (
                (taken, then) for taken, then in self._taken_unseen(held, at, NEVER) if taken.grant == call.grant
            )

    def _freed(self, held: RegisterState, at: float) -> tuple[RegisterState, float]:
        """Return the state without the holder, and the earliest time at which that is possible."""
        if not held.grant and not held.is_closed:
            return held, at
        frees_at = held.expires_at
        if held.grant:
            ended_at = self._ends_at.get(held.grant, NEVER)
            closed_at = (
                call.sent_at for call in self._sessions[held.session] if call.what == "close" and call.is_unknown
            )
            killed_at = (at for at in self._killed_at[self._node_of.get(held.grant, "")] if at >= held.since)
            frees_at = min(frees_at, ended_at, min(closed_at, default=NEVER), min(killed_at, default=NEVER))
        return _free(held, max(held.since, frees_at)), max(at, frees_at)

    def _taken(self, held: RegisterState, call: Call, at: float) -> RegisterState:
        """Return the state with the caller as the holder, until the end of its session's last renewal."""
        token = max(held.token, (call.token if call.is_ok else self._token_of.get(call.grant)) or 0)
        forgot_at = self._forgot_at[: bisect_right(self._forgot_at, at)]
        renewals = (
            each.sent_at
            for each in self._sessions[call.session]
            if each.is_ok and each.ended_at <= call.sent_at and each.sent_at > max(forgot_at, default=-NEVER)
        )
        renewed_at = max(renewals, default=-NEVER)
        return RegisterState(call.grant, call.session, token, at, max(at, renewed_at + self._ttl_s), held.used)

    def _taken_unseen(self, held: RegisterState, at: float, until: float) -> Iterator[tuple[RegisterState, float]]:
        """Return the states in which an unanswered acquisition has taken effect, because that explains something.

        It may have happened earlier, and may then also end earlier.
        """
        free, freed_at = self._freed(held, at)
        for call in self._unanswered:
            if call.number in held.used or call.sent_at > until or freed_at > until:
                continue
            if self._is_durable and (self._token_of.get(call.grant) or NEVER) <= free.token:
                continue
            taken = self._taken(free, call, max(free.since, call.sent_at))
            yield taken._replace(used=held.used | {call.number}), max(freed_at, call.sent_at)

    def _forgotten(self, held: RegisterState, at: float, until: float) -> Iterator[tuple[RegisterState, float]]:
        """Return the given state, and the unknown state if the store may have lost its data since."""
        position = bisect_left(self._forgot_at, held.since)
        forgot_at = self._forgot_at[position] if position < len(self._forgot_at) else NEVER
        if forgot_at > at:
            yield held, at
        if forgot_at <= until:
            then = max(at, forgot_at)
            yield RegisterState(None, since=then, expires_at=then, token=held.token, used=held.used), then


def _free(held: RegisterState, at: float) -> RegisterState:
    return RegisterState(token=held.token, since=at, used=held.used)


def check(evidence: Evidence) -> Iterator[Violation]:
    """Search an order for each name."""
    every = calls(evidence.history, "open", "acquire", "renew", "release", "revoke", "close")
    sessions: dict[str, list[Call]] = defaultdict(list)
    names: dict[str, list[Call]] = defaultdict(list)
    for call in every:
        if call.what in ("open", "renew", "close"):
            sessions[call.session].append(call)
        if call.name:
            names[call.name].append(call)
    for name, own in sorted(names.items()):
        yield from _judge(name, evidence, own, sessions)


def _judge(name: str, evidence: Evidence, own: list[Call], sessions: dict[str, list[Call]]) -> Iterator[Violation]:
    users = {call.session for call in own if call.session}
    shared = [call for user in sorted(users) for call in sessions[user] if not call.name]
    register = _Name(evidence, own, sessions)
    stuck = explain([call for call in (*own, *shared) if _says_something(call)], RegisterState(), register.step)
    if stuck is not None:
        yield _violation(name, stuck)


def _says_something(call: Call) -> bool:
    if call.is_unknown or call.what == "open":
        return False
    return call.what != "acquire" or call.is_ok or call.detail.get("why") == "held"


def _violation(name: str, stuck: StuckOrder[RegisterState]) -> Violation:
    held = stuck.state
    state = f"held by grant {held.grant!r} under token {held.token} since {held.since:.3f} s" if held.grant else "free"
    what = "no order of its calls explains all answers" if stuck.is_decided else "no order was found in time"
    return Violation(
        NAME, f"{name!r}: {what}; after {stuck.explained} calls it is {state}, and then comes: {stuck.call}"
    )
