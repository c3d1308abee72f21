"""Refused tries, as the audit has them. An attacker must not be able to fill the audit, or to hold up acts of others.

**Promises.** A refused try of a known caller has an entry of its own, up to `MOST_ENTRIES` a minute for each principal;
further ones of that minute are counted, and are one entry together. Tries before it is known who asks are counted by
account, address and minute, and are written at most once a second, all in one transaction. So they lock the head of
the audit at most once a second, however many there are.

**Not promised.** That a count is written if the process is killed before: what is counted is written by the next
refusal, by `write`, which a server calls every second, and by `close`. Names that no account has are not written:
people type passwords there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.core.audit_words import LOG_IN, SEVERAL
from fencepost.core.identity import LONGEST_NAME, LONGEST_SCHEDULE_ID
from fencepost.core.rights import Caller
from fencepost.errors import FencepostError
from fencepost.ledger import auditing
from fencepost.ledger.auditing import AuditAct
from fencepost.ledger.dialects import Cursor
from fencepost.ledger.ledger import Ledger

MOST_ENTRIES = 10  # a minute and principal; a person who tries the wrong buttons has fewer, a program soon more
MOST_COUNTED = 100  # accounts and addresses in one write; the rest of them are one number
WRITE_EVERY_S = 1.0  # so that refusals before authentication cannot load the ledger
REFUSED = "refused"
_MINUTE_S = 60.0
_LARGEST_ID = 2**63 - 1  # what the column of run ids holds: eight bytes
_LONGEST = 200  # names come from callers without rights: keep the entry small


class Unknown(NamedTuple):
    """Who tried to get in: the account, if there is one of that name, how, from where, and what was tried."""

    how: str
    account: str | None = None
    address: str | None = None
    act: str = LOG_IN


_OTHERS = Unknown("several ways", None, "other addresses")


@dataclass(slots=True)
class _Minute:
    """What one principal was refused in a minute."""

    caller: Caller
    number: int
    entries: int = 0
    counted: int = 0


class Refusals:
    """The refused tries that this process has seen."""

    def __init__(self, ledger: Ledger) -> None:
        """Write them to the audit of `ledger`."""
        self._ledger = ledger
        self._runtime = ledger.runtime
        self._lock = self._runtime.lock()
        self._minutes: dict[str, _Minute] = {}
        self._unknown: dict[tuple[int, Unknown], int] = {}
        self._written_at = -WRITE_EVERY_S

    def record(self, caller: Caller, act: str, error: FencepostError, asked: Mapping[str, Any]) -> None:
        """Record that a known caller was refused. `asked` is what the request named; it may not exist."""
        detail = {"why": type(error).__name__, **{name: _short(value) for name, value in asked.items()}}
        said = AuditAct(
            caller,
            act,
            job=_name(getattr(error, "job", None), LONGEST_NAME) or _name(asked.get("job"), LONGEST_NAME),
            run_id=_run_id(asked.get("run")),
            schedule=_name(asked.get("schedule"), LONGEST_SCHEDULE_ID),
            outcome=REFUSED,
            detail=detail,
        )
        with self._lock:
            minute = self._minute(caller)
            is_own = minute.entries < MOST_ENTRIES
            if is_own:
                minute.entries += 1
            else:
                minute.counted += 1
        if is_own:
            self._append([said])
        self.write()

    def count(self, who: Unknown) -> None:
        """Count a try of one who is not known."""
        with self._lock:
            key = (self._now_minute(), who)
            if key not in self._unknown and len(self._unknown) >= MOST_COUNTED:
                key = (self._now_minute(), _OTHERS)
            self._unknown[key] = self._unknown.get(key, 0) + 1
        self.write()

    def write(self, *, is_last: bool = False) -> None:
        """Write what was counted, unless that was done within the last second. Call it now and then."""
        with self._lock:
            now = self._runtime.monotonic()
            if not is_last and now - self._written_at < WRITE_EVERY_S:
                return
            over = {name: each for name, each in self._minutes.items() if is_last or each.number < self._now_minute()}
            unknown, self._unknown = self._unknown, {}
            for name in over:
                del self._minutes[name]
            said = [*(_of_known(each) for each in over.values() if each.counted), *map(_of_unknown, unknown.items())]
            if said:
                self._written_at = now
        if said and not self._append(said):
            with self._lock:  # counted again: the ledger may answer later
                for key, number in unknown.items():
                    self._unknown[key] = self._unknown.get(key, 0) + number
                for name, each in over.items():
                    self._minutes.setdefault(name, each)

    def close(self) -> None:
        """Write all that was counted."""
        self.write(is_last=True)

    def _append(self, said: list[AuditAct]) -> bool:
        """Add entries; return whether that worked. What was refused stays refused if it did not."""

        def work(cursor: Cursor) -> None:
            for each in said:
                auditing.record(self._ledger, cursor, each)

        try:
            self._ledger.write(work)
        except FencepostError:
            return False
        return True

    def _minute(self, caller: Caller) -> _Minute:
        """Return what was refused in this minute. A minute that is over is written by `write`, unless it is empty."""
        number = self._now_minute()
        found = self._minutes.get(caller.name)
        if found is None or (found.number < number and not found.counted):
            found = self._minutes[caller.name] = _Minute(caller, number)
        return found

    def _now_minute(self) -> int:
        return int(self._runtime.monotonic() // _MINUTE_S)


def _of_known(minute: _Minute) -> AuditAct:
    return AuditAct(minute.caller, SEVERAL, outcome=REFUSED, detail={"count": minute.counted})


def _of_unknown(counted: tuple[tuple[int, Unknown], int]) -> AuditAct:
    (_, who), number = counted
    name = "unknown" if who.account is None else f"user:{who.account}"
    return AuditAct(Caller(name, who.how, who.address), who.act, outcome=REFUSED, detail={"count": number})


def _name(value: object, longest: int) -> str | None:
    """Return what can be the name of a job or the id of a schedule; the rest of what was asked is in the details."""
    return value if isinstance(value, str) and 0 < len(value) <= longest else None


def _run_id(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value <= _LARGEST_ID else None


def _short(value: object) -> object:
    if value is None or isinstance(value, int):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
