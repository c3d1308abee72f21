"""Everything Fencepost raises, in one tree.

::

    FencepostError
    ├── ConfigurationError        what you asked for cannot work; mend it and start again
    │   ├── EffectsMissing        a database that is to receive effects lacks the tables for it
    │   ├── InvalidApp            "shop.jobs:app" does not import, or is no application
    │   ├── InvalidBulk           a bulk job that could not be resumed, or would do its work twice
    │   ├── InvalidDuration       "5 parsecs"
    │   ├── InvalidHeader         a fencing header of a request that makes no sense
    │   ├── InvalidJob            a function that cannot be a job
    │   ├── InvalidName           a name that is empty, too long or has odd characters
    │   ├── InvalidParameters     parameters that do not fit the job's function, or are no JSON
    │   ├── InvalidPolicy         a policy with an unknown name or an impossible value
    │   ├── InvalidSchedule       a bad cron, an unknown time zone, a schedule that is never due
    │   ├── InvalidSetting        a setting with an unknown name or a bad value, and where it stands
    │   ├── InvalidTick           a due time without a time zone, or a cron that is none
    │   ├── InvalidTimings        ttl, margin and renewal do not fit together
    │   ├── InvalidUrl            a store URL with an unknown scheme or a bad part
    │   ├── LedgerRefused         the ledger's database answered, and said no (credentials, rights, version)
    │   │   └── SchemaMismatch    its tables are missing, too old or too new for this node
    │   ├── MissingExtra          the backend's driver is not installed
    │   ├── StoreRefused          the server answered, and said no (credentials, rights, version)
    │   └── UnsafeStore           the server works, but locks on it would not hold
    ├── NotAcquired               you did not get the lock, for a known reason
    │   ├── LockHeld              somebody else has it
    │   └── TickDone              this due time has been done already
    ├── DuplicateRequest          this key was used before, for something else
    │   └── AlreadyRequested      the same was asked for before, and has not ended; insist with again=True
    ├── Hopeless                  a run that raised this is given up: no retry would mend it
    │   ├── BrokenInput           what a bulk job reads cannot be read: a file that ends within a record, a key twice
    │   ├── CheckpointMismatch    a checkpoint that was made by other code, or by another query
    │   ├── PartitionsFailed      some partitions of a bulk job were given up
    │   └── TooManySkipped        more items of a bulk job failed than its skip limit allows
    ├── IdempotencyConflict       this key was used before, for something else
    ├── IllegalMove               a run cannot go that way from its state
    ├── LedgerHeld                the ledger was restored or copied, and a person has to decide
    ├── LedgerUnavailable         the outcome is unknown: no answer, or a broken one
    ├── NotInLedger               what was named is not on record
    │   ├── NoSuchJob             no node has registered it
    │   ├── NoSuchLetter          there is no such dead letter
    │   ├── NoSuchRun             it never was, became part of a later one, or was pruned
    │   └── NoSuchSchedule        it never was, or was deleted
    ├── LeaseLost                 you had it, and no longer have the right to act
    ├── SequenceConflict          a sequence has moved on since it was looked at; nothing was written
    ├── StoreClosed               you closed the store, and then asked it for something
    ├── TransactionConflict       a fenced transaction met another change of its run; nothing was written, try again
    ├── TransactionTooLong        a transaction kept a SQLite ledger from everybody else, and was rolled back
    └── StoreUnavailable          the outcome is unknown: no answer, or a broken one

    Stopped                       raised inside a job that has to stop: let it pass. No `Exception`, so that
                                  ``except Exception`` does not swallow it

The branches differ by who can mend it: the programmer or operator (`ConfigurationError`), nobody,
because it is the normal course of things (`NotAcquired`), the caller, by stopping (`LeaseLost`), or
time (`StoreUnavailable`).
"""

from __future__ import annotations


class FencepostError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(FencepostError):
    """What was asked for cannot work until somebody changes it."""


class EffectsMissing(ConfigurationError):
    """A database that is to receive effects lacks the tables for it; the message names the command that makes them."""


class InvalidApp(ConfigurationError):
    """A text such as ``shop.jobs:app`` that does not lead to an application."""


class InvalidBulk(ConfigurationError, ValueError):
    """A bulk job whose reader, writer or options cannot work; the message says what to write instead."""


class InvalidDuration(ConfigurationError, ValueError):
    """A text or number that is no duration."""


class InvalidHeader(ConfigurationError, ValueError):
    """The header in which a writer shows its token makes no sense; the message says why."""


class InvalidJob(ConfigurationError, TypeError):
    """A function that cannot be a job, such as one whose parameters have no names."""


class InvalidName(ConfigurationError, ValueError):
    """A name that no store could keep faithfully."""


class InvalidParameters(ConfigurationError, ValueError):
    """Parameters that do not fit the job's function, or that are no JSON; the message names each of them."""


class InvalidPolicy(ConfigurationError, ValueError):
    """A policy with an unknown name or an impossible value."""


class InvalidSchedule(ConfigurationError, ValueError):
    """A schedule that cannot be understood, or that would never be due."""


class InvalidSetting(ConfigurationError, ValueError):
    """A setting with an unknown name or a bad value; the message begins with where it stands."""


class InvalidTick(ConfigurationError, ValueError):
    """A due time that is no instant, or a cron expression that is none."""


class InvalidTimings(ConfigurationError, ValueError):
    """Timings that contradict each other; the message names the inequality that fails."""


class InvalidUrl(ConfigurationError, ValueError):
    """A store URL that cannot be understood."""


class LedgerRefused(ConfigurationError):
    """The ledger's database answered and said no: credentials, rights, or something it cannot do."""


class SchemaMismatch(LedgerRefused):
    """The ledger's tables are missing, or of another version than this node can work with."""


class MissingExtra(ConfigurationError, ImportError):
    """The driver of a backend is not installed."""


class StoreRefused(ConfigurationError):
    """The server answered and said no: credentials, rights, or a version that is too old."""


class UnsafeStore(ConfigurationError):
    """The server works, but a lock kept there would not hold.

    `risk` is the word with which an operator may accept it: ``accept_risk=<risk>``.
    """

    def __init__(self, risk: str, message: str) -> None:
        super().__init__(f"{message} (to accept this knowingly: accept_risk={risk})")
        self.risk = risk


class NotAcquired(FencepostError):
    """The lock was not taken, for a reason that is known."""


class LockHeld(NotAcquired):
    """Somebody else holds the lock, or it is kept closed for a while after its holder (`at_least`)."""

    def __init__(
        self, name: str, holder: str | None, token: int | None = None, *, closed_for_s: float | None = None
    ) -> None:
        by = f" by {holder}" if holder else ""
        closed = f"is kept closed for another {closed_for_s or 0:.1f} s: its last holder asked for that (at_least)"
        super().__init__(f"lock {name!r} {f'is held{by}' if closed_for_s is None else closed}")
        self.name = name
        self.holder = holder
        self.token = token


class TickDone(NotAcquired):
    """This due time has been done already, here or elsewhere."""

    def __init__(self, name: str, tick: str, last: str) -> None:
        super().__init__(f"lock {name!r}: tick {tick} is already done (last done: {last})")
        self.name = name
        self.tick = tick
        self.last = last


class IllegalMove(FencepostError):
    """A run cannot go that way from its state; nothing was changed."""

    def __init__(self, state: str, move: str, to: str | None = None) -> None:
        super().__init__(f"a run that is {state!r} cannot {move!r}{f' to {to!r}' if to else ''}")
        self.state = state
        self.move = move
        self.to = to


class LeaseLost(FencepostError):
    """The lease is gone: stop, and write nothing more in its name."""

    def __init__(self, name: str, token: int, reason: str) -> None:
        super().__init__(f"lease on {name!r} (token {token}) is lost: {reason}")
        self.name = name
        self.token = token
        self.reason = reason


class StoreClosed(FencepostError):
    """The store was closed by its owner, and gives no more locks."""

    def __init__(self) -> None:
        super().__init__("this store was closed; connect again to take locks")


class StoreUnavailable(FencepostError):
    """The store did not answer, or not in time. What was asked may or may not have happened."""


class LedgerHeld(FencepostError):
    """The ledger was restored or copied, and nobody has decided yet what it is; the message names the commands."""


class LedgerUnavailable(FencepostError):
    """The ledger's database did not answer, or not in time. What was asked may or may not have happened."""


class DuplicateRequest(FencepostError):
    """The key of a request was used before, for another job or with other parameters. Nothing was enqueued."""

    def __init__(self, origin_key: str, *, run_id: int, job: str) -> None:
        key = origin_key.removeprefix("request:")  # which stands before a key of the user's own
        super().__init__(
            f"the key {key!r} already stands for run {run_id} of job {job!r}, which asked for something else; "
            "use another key, or the same parameters"
        )
        self.origin_key = origin_key
        self.run_id = run_id
        self.job = job


class AlreadyRequested(DuplicateRequest):
    """What a person asks for is under way already. Nothing was enqueued; `run_id` is the run that does it."""

    def __init__(
        self, what: str, *, run_id: int, job: str, state: str, requested_by: str | None, requested_at: str
    ) -> None:
        by = f" by {requested_by}" if requested_by else ""
        FencepostError.__init__(
            self,
            f"run {run_id} of job {job!r} {what} and is {state} (made at {requested_at}{by}), so nothing was asked "
            "for; wait for it, or insist: --again, in code again=True",
        )
        self.origin_key = ""
        self.run_id = run_id
        self.job = job
        self.state = state
        self.requested_by = requested_by
        self.requested_at = requested_at


class Hopeless(FencepostError):
    """Raised by a job whose run is to be given up at once: to try it again would fail again."""


class BrokenInput(Hopeless):
    """What a bulk job reads cannot be read on; what was read before it has landed, and a restart goes on there."""


class CheckpointMismatch(Hopeless):
    """A bulk job was changed while an unfinished run of it has checkpoints that its new code cannot go on from."""


class PartitionsFailed(Hopeless):
    """Some partitions of a bulk job were given up; the message names them, and what became of the others."""


class TooManySkipped(Hopeless):
    """One item more failed than the skip limit allows. All before it has landed, and a restart goes on there."""


class IdempotencyConflict(FencepostError):
    """An idempotency key was used before, for something else. Nothing was done."""

    def __init__(self, key: str, name: str, *, job: str | None = None, run_id: int | None = None) -> None:
        by = f" by run {run_id} of {job!r}" if run_id is not None else ""
        super().__init__(
            f"the key {key!r} was used before{by} for something else than this call of {name}: with other arguments, "
            "or for other work; nothing was done. Use another key, or the same arguments"
        )
        self.key = key
        self.job = job
        self.run_id = run_id


class SequenceConflict(FencepostError):
    """A sequence is not where its caller believed it to be; nothing was written."""

    def __init__(self, name: str, *, expected: int | None, found: int | None) -> None:
        super().__init__(
            f"sequence {name!r} was to go on after {expected}, and is at {found}: somebody else has moved it; "
            "nothing was written, read it again"
        )
        self.name = name
        self.expected = expected
        self.found = found


class NotInLedger(FencepostError, LookupError):
    """What was named is not on record in the ledger."""


class NoSuchRun(NotInLedger):
    """There is no run with this id: it never was, became part of a later run before it began, or was pruned."""

    def __init__(self, run_id: int) -> None:
        super().__init__(
            f"there is no run {run_id}; it never was, or a later run of its schedule makes good for it (misfire is "
            "once: fencepost why JOB --at TIME), or it has been pruned"
        )
        self.run_id = run_id


class NoSuchJob(NotInLedger):
    """No node has registered a job of this name."""

    def __init__(self, name: str, hint: str = "a job is registered when a node that has it starts") -> None:
        super().__init__(f"there is no job {name!r} in the ledger; {hint}")
        self.name = name


class NoSuchLetter(NotInLedger):
    """There is no dead letter with this id where the job writes to."""


class NoSuchSchedule(NotInLedger):
    """There is no schedule with this id: it never was, or it was deleted."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"there is no schedule {schedule_id!r}; it never was, or it has been deleted")
        self.schedule_id = schedule_id


class TransactionConflict(FencepostError):
    """The run's row was changed while a fenced transaction ran; nothing was written, and it may be tried again."""


class TransactionTooLong(FencepostError):
    """A transaction kept everybody else from writing to a SQLite ledger for too long, and was rolled back."""


class Stopped(BaseException):
    """Raised inside a job that has to stop: it was cancelled, is out of time, or its node shuts down. Let it pass.

    `reason` is a `fencepost.core.runs.StopReason`, as text.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"this run has to stop: {reason}")
        self.reason = reason
