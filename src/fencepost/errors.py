"""All exceptions that Fencepost raises, in one tree.

::

    FencepostError
    ├── ConfigurationError        the configuration or the call cannot work; correct it and try again
    │   ├── EffectsMissing        a database that receives effects lacks the tables for them
    │   ├── InvalidApp            "shop.jobs:app" cannot be imported, or is not an application
    │   ├── InvalidBulk           a bulk job that could not be resumed, or would do its work twice
    │   ├── InvalidDuration       "5 parsecs"
    │   ├── InvalidHeader         a malformed fencing header of a request
    │   ├── InvalidJob            a function that cannot be a job
    │   ├── InvalidName           a name that is empty, too long or has characters that are not allowed
    │   ├── InvalidParameters     parameters that do not fit the job's function, or cannot be stored as JSON
    │   ├── InvalidPolicy         a policy with an unknown name or an impossible value
    │   ├── InvalidSchedule       an invalid cron expression, an unknown time zone, a schedule that is never due
    │   ├── InvalidSetting        a setting with an unknown name or an invalid value; the message says where it is set
    │   ├── InvalidTick           a due time without a time zone, or an invalid cron expression
    │   ├── InvalidTimings        ttl, margin and renewal interval do not fit together
    │   ├── InvalidUrl            a store URL with an unknown scheme or an invalid part
    │   ├── AuditHeadMissing      the row that ends the audit's chain was deleted: no act can be recorded
    │   ├── LedgerRefused         the ledger's database refused the request (credentials, privileges, version)
    │   │   └── SchemaMismatch    its tables are missing, too old or too new for this node
    │   ├── MissingExtra          the backend's driver is not installed
    │   ├── StoreRefused          the server refused the request (credentials, privileges, version)
    │   └── UnsafeStore           the server works, but locks on it would not be safe
    ├── NotAcquired               the lock was not acquired, for a known reason
    │   ├── LockHeld              another holder has it
    │   └── TickDone              this due time is already done
    ├── DuplicateRequest          this key was used before, for another request
    │   └── AlreadyRequested      the same request was made before, and its run has not ended; again=True runs it anyway
    ├── Hopeless                  a run that raises this fails at once, without retries
    │   ├── BrokenInput           a bulk job cannot read its input: a file that ends within a record, a duplicate key
    │   ├── NoSuchSecret          a job takes a secret by a name that nobody knows
    │   ├── CheckpointMismatch    a checkpoint that was written by other code, or for another query
    │   ├── PartitionsFailed      some partitions of a bulk job were given up
    │   └── TooManySkipped        more items of a bulk job failed than its skip limit allows
    ├── IdempotencyConflict       this key was used before, with other arguments or for other work
    ├── IllegalMove               the run's state does not allow this transition
    ├── LedgerHeld                the ledger was restored or copied, and an operator has to decide how to go on
    ├── LedgerUnavailable         the outcome is unknown: no reply from the ledger's database, or a broken one
    ├── NotAllowed                the person or API token does not have the role that this needs
    │   ├── ReasonRequired        the role of the person or API token has to give a reason for every act
    │   └── LastAdmin             the last admin would lose the role: nobody could change permissions any more
    ├── NotAuthenticated          no valid login or API token
    │   └── TooManyTries          too many wrong passwords; none is compared for a while
    ├── NotInLedger               the ledger has no record of this name or id
    │   ├── NoSuchAccount         no account has this name
    │   ├── NoSuchApiToken        no API token has this id
    │   ├── NoSuchJob             no node has registered the job
    │   ├── NoSuchLetter          the dead letter does not exist
    │   ├── NoSuchLock            the lease store has no lock of this name
    │   ├── NoSuchNode            no living node has this id or name
    │   ├── NoSuchRun             the run never existed, was merged into a later one, or was pruned
    │   └── NoSuchSchedule        the schedule never existed, or was deleted
    ├── LeaseLost                 the lease is lost, and with it the right to act
    ├── RequestUnderWay           a request with this key was begun, and its answer is not known; nothing was done
    ├── SecretUnavailable         a secret could not be looked up, or is used where it has no value
    ├── StateChanged              a run, schedule or lock is no longer as the caller saw it; nothing was done
    ├── SequenceConflict          a sequence has changed since it was read; nothing was written
    ├── StoreClosed               the store was used after it was closed
    ├── TransactionConflict       the run was changed during a fenced transaction; nothing was written, try again
    ├── TransactionTooLong        a transaction blocked all other writers of a SQLite ledger, and was rolled back
    └── StoreUnavailable          the outcome is unknown: no reply from the store, or a broken one

    Stopped                       raised inside a job that must stop; not an `Exception`, so that no job catches it

The branches differ in what resolves the error. `ConfigurationError`: a programmer or operator corrects the cause.
`NotAcquired`: nothing, it is a normal outcome. `LeaseLost`: the caller stops. `StoreUnavailable`: a later retry.
"""

from __future__ import annotations


class FencepostError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(FencepostError):
    """The configuration or the call is wrong; it cannot succeed until it is corrected."""


class AuditHeadMissing(ConfigurationError):
    """The row that ends the audit's chain was deleted. Acts are refused, because none could be recorded."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the one row of {table} was deleted, so nothing that people do can be recorded in the audit, and it is "
            "refused; restore the row: n and hash of the last entry, floor_n and floor_hash of the last one pruned"
        )


class EffectsMissing(ConfigurationError):
    """A database that receives effects lacks the tables for them; the message names the command that creates them."""


class InvalidApp(ConfigurationError):
    """A reference such as ``shop.jobs:app`` that does not resolve to an application."""


class InvalidBulk(ConfigurationError, ValueError):
    """A bulk job whose reader, writer or options cannot work; the message says what to write instead."""


class InvalidDuration(ConfigurationError, ValueError):
    """A value that is not a valid duration."""


class InvalidHeader(ConfigurationError, ValueError):
    """The header that carries a writer's token is malformed; the message says why."""


class InvalidJob(ConfigurationError, TypeError):
    """A function that cannot be a job, such as one whose parameters have no names."""


class InvalidName(ConfigurationError, ValueError):
    """A name that not every store could keep unchanged: empty, too long, or with characters that are not allowed."""


class InvalidParameters(ConfigurationError, ValueError):
    """Parameters that do not fit the job's function, or cannot be stored as JSON; the message names each of them."""


class InvalidPolicy(ConfigurationError, ValueError):
    """A policy with an unknown name or an impossible value."""


class InvalidSchedule(ConfigurationError, ValueError):
    """A schedule that cannot be parsed, or that would never be due."""


class InvalidSetting(ConfigurationError, ValueError):
    """A setting with an unknown name or an invalid value; the message begins with where it is set."""


class InvalidTick(ConfigurationError, ValueError):
    """A due time without a time zone, or an invalid cron expression."""


class InvalidTimings(ConfigurationError, ValueError):
    """Timings that contradict each other; the message names the inequality that fails."""


class InvalidUrl(ConfigurationError, ValueError):
    """A store URL that cannot be parsed, or has an unknown scheme."""


class LedgerRefused(ConfigurationError):
    """The ledger's database refused the request: credentials, privileges, or a feature that it lacks."""


class SchemaMismatch(LedgerRefused):
    """The ledger's tables are missing, or have a version that this node cannot work with."""


class MissingExtra(ConfigurationError, ImportError):
    """The driver of a backend is not installed."""


class StoreRefused(ConfigurationError):
    """The server refused the request: credentials, privileges, or a version that is too old."""


class UnsafeStore(ConfigurationError):
    """The server works, but locks kept there would not be safe.

    `risk` is the word with which an operator can accept the risk: ``accept_risk=<risk>``.
    """

    def __init__(self, risk: str, message: str) -> None:
        super().__init__(f"{message} (to accept this risk: accept_risk={risk})")
        self.risk = risk


class NotAcquired(FencepostError):
    """The lock was not acquired, for a known reason."""


class LockHeld(NotAcquired):
    """Another holder has the lock, or its last holder asked to keep it closed for a while (`at_least`)."""

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
    """This due time is already done, by this process or another."""

    def __init__(self, name: str, tick: str, last: str) -> None:
        super().__init__(f"lock {name!r}: tick {tick} is already done (last done: {last})")
        self.name = name
        self.tick = tick
        self.last = last


class RequestUnderWay(FencepostError):
    """A request with the same key was begun, and its answer is not known: it is under way, or was cut off."""


class SecretUnavailable(FencepostError):
    """A secret could not be looked up, or is used where it has no value. The message never has the value."""


class StateChanged(FencepostError):
    """A run, schedule or lock is no longer as the caller saw it; nothing was changed. Look again, and decide again."""


class IllegalMove(FencepostError):
    """The run's state does not allow this transition; nothing was changed."""

    def __init__(self, state: str, move: str, to: str | None = None) -> None:
        super().__init__(f"a run that is {state!r} cannot {move!r}{f' to {to!r}' if to else ''}")
        self.state = state
        self.move = move
        self.to = to


class LeaseLost(FencepostError):
    """The lease is lost: stop, and write nothing more under it."""

    def __init__(self, name: str, token: int, reason: str) -> None:
        super().__init__(f"lease on {name!r} (token {token}) is lost: {reason}")
        self.name = name
        self.token = token
        self.reason = reason


class StoreClosed(FencepostError):
    """The store was closed by the application, and grants no more locks."""

    def __init__(self) -> None:
        super().__init__("this store was closed; connect again to take locks")


class StoreUnavailable(FencepostError):
    """The store did not reply, or not in time. The request may or may not have been carried out."""


class LedgerHeld(FencepostError):
    """The ledger was restored or copied, and an operator has to decide how to go on; the message names the commands."""


class LedgerUnavailable(FencepostError):
    """The ledger's database did not reply, or not in time. The request may or may not have been carried out."""


class DuplicateRequest(FencepostError):
    """The key of a request was used before, for another job or with other parameters. Nothing was enqueued."""

    def __init__(self, origin_key: str, *, run_id: int, job: str, is_shown: bool = True) -> None:
        key = origin_key.removeprefix("request:")  # the ledger's prefix for keys that users chose
        which = f"for run {run_id} of job {job!r}, with other parameters or another job" if is_shown else "elsewhere"
        super().__init__(f"the key {key!r} was already used {which}; use another key, or the same parameters")
        self.origin_key = origin_key
        self.run_id = run_id
        self.job = job


class AlreadyRequested(DuplicateRequest):
    """An operator's request matches a run that has not ended. Nothing was enqueued; `run_id` is that run."""

    def __init__(
        self, what: str, *, run_id: int, job: str, state: str, requested_by: str | None, requested_at: str
    ) -> None:
        by = f" by {requested_by}" if requested_by else ""
        FencepostError.__init__(
            self,
            f"run {run_id} of job {job!r} {what} and is {state} (made at {requested_at}{by}), so nothing was "
            'enqueued; wait for it, or run it anyway: --again, in code again=True, by REST "again": true',
        )
        self.origin_key = ""
        self.run_id = run_id
        self.job = job
        self.state = state
        self.requested_by = requested_by
        self.requested_at = requested_at


class Hopeless(FencepostError):
    """Raised by a job to fail its run at once, without retries, because a retry would fail again."""


class BrokenInput(Hopeless):
    """A bulk job cannot read its input any further. Everything before has landed, and a restart continues there."""


class NoSuchSecret(Hopeless):
    """A job takes a secret by a name that nobody knows: a retry would not find it either."""


class CheckpointMismatch(Hopeless):
    """A bulk job was changed, and its new code cannot continue from the checkpoints of an unfinished run."""


class PartitionsFailed(Hopeless):
    """Some partitions of a bulk job were given up; the message names them, and the state of the others."""


class TooManySkipped(Hopeless):
    """More items failed than the skip limit allows. Everything before has landed, and a restart continues there."""


class IdempotencyConflict(FencepostError):
    """An idempotency key was used before, with other arguments or for other work. Nothing was done."""

    def __init__(self, key: str, name: str, *, job: str | None = None, run_id: int | None = None) -> None:
        by = f" by run {run_id} of {job!r}" if run_id is not None else ""
        super().__init__(
            f"the key {key!r} was used before{by} with other arguments or for other work than this call of {name}; "
            "nothing was done. Use another key, or the same arguments"
        )
        self.key = key
        self.job = job
        self.run_id = run_id


class SequenceConflict(FencepostError):
    """A sequence does not have the value that the caller expected; nothing was written."""

    def __init__(self, name: str, *, expected: int | None, found: int | None) -> None:
        super().__init__(
            f"sequence {name!r} was expected at {expected}, but is at {found}: another writer has advanced it; "
            "nothing was written. Read the sequence again"
        )
        self.name = name
        self.expected = expected
        self.found = found


class NotAllowed(FencepostError):
    """The person or API token does not have the role that this needs; nothing was changed."""

    def __init__(self, message: str, *, act: str | None = None, job: str | None = None) -> None:
        super().__init__(message)
        self.act = act
        self.job = job


class NotAuthenticated(FencepostError):
    """It is not known who asks: no login or API token, or one that is wrong, has expired or was revoked."""

    def __init__(self, message: str = "log in, or send a valid API token") -> None:
        super().__init__(message)


class TooManyTries(NotAuthenticated):
    """Too many wrong passwords for this account, or from this address. Nothing was compared; try again later."""

    def __init__(self, retry_in_s: float) -> None:
        super().__init__(f"too many wrong passwords: try again in {max(1, round(retry_in_s))} s")
        self.retry_in_s = retry_in_s


class ReasonRequired(NotAllowed):
    """The role of the person or API token has to give a reason for every act, and there is none; nothing was done."""


class LastAdmin(NotAllowed):
    """The last admin for all jobs would lose the role; nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            "this is the last admin for all jobs, without whom nobody could change permissions; make another one "
            "first: fencepost permissions give user:NAME admin"
        )


class NotInLedger(FencepostError, LookupError):
    """The ledger has no record of this name or id."""


class NoSuchAccount(NotInLedger):
    """No account has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no account {name!r}; fencepost users list shows those there are")
        self.name = name


class NoSuchApiToken(NotInLedger):
    """No API token has this id."""


class NoSuchLock(NotInLedger):
    """The lease store has no lock of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no lock {name!r} here")


class NoSuchRun(NotInLedger):
    """The run never existed, was merged into a later run before it started, or was pruned."""

    def __init__(self, run_id: int) -> None:
        merged = 'merged into a later run of its schedule (misfire "once"; see fencepost why JOB --at TIME)'
        super().__init__(f"there is no run {run_id}: it never existed, it was {merged}, or it was pruned")
        self.run_id = run_id


class NoSuchJob(NotInLedger):
    """No node has registered a job with this name."""

    def __init__(self, name: str, hint: str = "", *, where: str = "in the ledger") -> None:
        hint = hint or "a job is registered when a node that has it starts"
        super().__init__(f"there is no job {name!r} {where}; {hint}")
        self.name = name


class NoSuchLetter(NotInLedger):
    """The database that the job writes to has no dead letter with this id."""


class NoSuchNode(NotInLedger):
    """No living node has this id or name."""


class NoSuchSchedule(NotInLedger):
    """The schedule never existed, or was deleted."""

    def __init__(self, schedule_id: str, message: str = "") -> None:
        super().__init__(message or f"there is no schedule {schedule_id!r}: it never existed, or it was deleted")
        self.schedule_id = schedule_id


class TransactionConflict(FencepostError):
    """The run's row was changed during a fenced transaction. Nothing was written; the transaction can be retried."""


class TransactionTooLong(FencepostError):
    """A transaction blocked all other writers of a SQLite ledger for too long, and was rolled back."""


class Stopped(BaseException):
    """Raised inside a job that must stop: it was cancelled, timed out, or its node is shutting down. Do not catch it.

    `reason` is a `fencepost.core.runs.StopReason`, as text.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"this run must stop: {reason}")
        self.reason = reason
