"""Dead letters of an application's bulk jobs: listed, shown, replayed and dropped. ``app.operations.letters``.

Letters are in the databases that jobs write to. Only the code knows which these are, so this needs the bulk jobs
themselves. Each database numbers its letters separately. If two letters have the same id, name the job and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.app.numbers import is_id, page_edge, page_limit
from fencepost.app.people import reason_given
from fencepost.app.records import LetterRecord
from fencepost.app.scoped import acting, actor
from fencepost.bulk.labels import PART
from fencepost.bulk.letters import DROPPED, NEW, STATES, LetterFilter, StoredLetter, letters, letters_by_id, settle
from fencepost.bulk.places import database_of, targets_of
from fencepost.bulk.visits import visiting, visitor
from fencepost.core.nearest import suggestion
from fencepost.core.noted import Noted
from fencepost.core.rights import HumanAct
from fencepost.errors import ConfigurationError, InvalidParameters, NoSuchLetter, NotInLedger
from fencepost.ledger.identity import identity
from fencepost.ledger.journal import journal
from fencepost.ledger.naming import short

if TYPE_CHECKING:
    from fencepost.app.bulk import BulkJob
    from fencepost.core.rights import Scope
    from fencepost.ledger.ledger import Ledger
    from fencepost.ledger.recording import Enqueued

_PAGE = 200  # letters that are kept in memory at once, each with its item


class LetterDatabase(NamedTuple):
    """A database, and the names of the jobs, and of their parts, whose letters are in it."""

    target: Any
    jobs: tuple[str, ...]

    def __str__(self) -> str:
        url: Any = getattr(self.target, "url", None)
        return str(url.render_as_string(hide_password=True)) if hasattr(url, "render_as_string") else "a database"


class Found(NamedTuple):
    """A letter, and the database it is in."""

    letter: StoredLetter
    database: LetterDatabase

    def record(self) -> LetterRecord:
        """Return the record, with the job's name also for a letter of one of its parts."""
        return LetterRecord.of(self.letter, job=self.letter.job.removesuffix(PART), database=str(self.database))


class Letters:
    """The dead letters of the bulk jobs of one application."""

    def __init__(
        self,
        ledger: Ledger,
        scope: Scope,
        bulks: Mapping[str, BulkJob],
        jobs: Container[str],
        trigger: Callable[..., Enqueued],
    ) -> None:
        """Look where `bulks` write to: those that `scope` shows. `trigger` asks for a run in the name of a person."""
        self._ledger = ledger
        self._scope = scope
        self._archive = _Archive(ledger, bulks, jobs)
        self._trigger = trigger

    def list(
        self,
        job: str | None = None,
        *,
        state: str | None = None,
        step: str = "",
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[LetterRecord]:
        """Return letters, newest first in each database: those before `before_id`, at most `limit`."""
        return list(islice(self.iterate(job, state=state, step=step, before_id=before_id), page_limit(limit)))

    def iterate(
        self, job: str | None = None, *, state: str | None = None, step: str = "", before_id: int | None = None
    ) -> Iterator[LetterRecord]:
        """Yield all matching letters, read page by page: there may be more than fit into memory."""
        if state is not None and state not in STATES:
            raise InvalidParameters(f"there is no state {state!r}; {suggestion(state, STATES)}")
        return (each.record() for each in self._archive.listed(job, state, step, before_id=page_edge(before_id)))

    def show(self, letter_id: int, *, job: str | None = None, step: str = "") -> LetterRecord:
        """Return one letter, or raise `NoSuchLetter`; refuse an id that two databases have."""
        return self._archive.by_id(job, [letter_id], step=step)[0].record()

    def replay(
        self,
        job: str,
        ids: Iterable[int] = (),
        *,
        by: str,
        reason: str,
        all_new: bool = False,
        step: str = "",
        again: bool = False,
    ) -> Enqueued | None:
        """Request a run that processes these letters again; with `all_new`, all that are new.

        Return None if there is nothing to replay. Raise `AlreadyRequested` while a replay of the same has not ended,
        unless `again` is set.
        """
        bulk, wanted = self._archive.bulk(job), _chosen(ids, all_new=all_new)
        self._scope.require(HumanAct.REPLAY_LETTERS, job)
        if wanted:
            _refuse_unfit(self._archive.by_id(job, wanted, step=step))
            params: dict[str, Any] = {"letters": wanted, "step": step}
        else:
            newest = self._archive.newest(job, step)
            if not newest:
                return None
            params = {"letters": [], "upto": newest, "step": step}
        return self._trigger(bulk.replay_name, params, by=by, reason=reason_given(reason), again=again)

    def drop(
        self, job: str, ids: Iterable[int] = (), *, by: str, reason: str, all_new: bool = False, step: str = ""
    ) -> int:
        """Mark letters as dropped, with `all_new` all that are new; they stay on record. Return how many were dropped.

        Letters that were replayed or dropped meanwhile are skipped.
        """
        self._archive.bulk(job)
        self._scope.require(HumanAct.DROP_LETTERS, job)
        who, why, wanted = actor(self._scope, by), reason_given(reason), _chosen(ids, all_new=all_new)
        if wanted:
            known = self._archive.by_id(job, wanted, step=step)
            _refuse_settled(known)
        chosen = iter(known) if wanted else self._archive.listed(job, NEW, step)
        with acting(self._scope):
            return sum(self._dropped(job, page, by=who, reason=why) for page in _pages_of(chosen))

    def _dropped(self, job: str, page: Sequence[Found], *, by: str, reason: str) -> int:
        """Drop letters of one database. The journal comes first: it may be elsewhere, and no act may go unrecorded."""
        ids = [each.letter.id for each in page]
        journal(self._ledger, what=Noted.LETTERS_DROPPED, job=job, by=by, reason=reason, detail={"letters": ids})
        writer = visitor(self._ledger)
        with visiting(page[0].database.target) as tx:
            return sum(settle(tx, writer, number, DROPPED) for number in ids)


class _Archive:
    """All databases that the bulk jobs write to, and the letters in them."""

    def __init__(self, ledger: Ledger, bulks: Mapping[str, BulkJob], jobs: Container[str]) -> None:
        self._ledger = ledger
        self._bulks = bulks
        self._jobs = jobs

    def bulk(self, name: str) -> BulkJob:
        return bulk_named(name, self._bulks, self._jobs)

    def _databases(self, job: str | None, step: str) -> list[LetterDatabase]:
        """Return the databases that the jobs write to, each once."""
        bulks = list(self._bulks.values()) if job is None else [self.bulk(job)]
        found: dict[Any, LetterDatabase] = {}
        for each in bulks:
            outline = each.declared.outline()
            if step and job is None and step not in [one.name for one in outline.steps]:
                continue
            for target in targets_of(outline, self._ledger, step=step):
                database = found.setdefault(database_of(target), LetterDatabase(target, ()))
                found[database_of(target)] = database._replace(jobs=(*database.jobs, *each.names))
        return list(found.values())

    def _is_ours(self, step: str) -> Callable[[StoredLetter], bool]:
        """Return the filter for letters of a step and of this ledger: another ledger may share the database."""
        ledger = short(identity(self._ledger))
        return lambda letter: step in ("", letter.step) and letter.is_of(ledger)

    def listed(self, job: str | None, state: str | None, step: str, *, before_id: int | None = None) -> Iterator[Found]:
        """Yield letters, newest first in each database, page by page."""
        writer, is_ours = visitor(self._ledger), self._is_ours(step)
        for database in self._databases(job, step):
            last, wanted = before_id, LetterFilter(database.jobs, state)
            while True:
                with visiting(database.target) as tx:
                    page = letters(tx, writer, wanted, before_id=last, limit=_PAGE)
                yield from (Found(each, database) for each in page if is_ours(each))
                if len(page) < _PAGE:
                    break
                last = page[-1].id

    def newest(self, job: str, step: str) -> int:
        """Return the highest id of a new letter in any of the databases; 0 if there is none."""
        writer, found = visitor(self._ledger), [0]
        for database in self._databases(job, step):
            with visiting(database.target) as tx:
                found += [each.id for each in letters(tx, writer, LetterFilter(database.jobs, NEW), limit=1)]
        return max(found)

    def by_id(self, job: str | None, ids: Sequence[int], *, step: str) -> list[Found]:
        """Return these letters; refuse if one does not exist, or if two databases have the same id."""
        writer, is_ours, found = visitor(self._ledger), self._is_ours(step), list[Found]()
        for database in self._databases(job, step):
            with visiting(database.target) as tx:
                some = letters_by_id(tx, writer, database.jobs, [number for number in ids if is_id(number)])
            found += [Found(each, database) for each in some if is_ours(each)]
        known = [each.letter.id for each in found]
        missing = [number for number in ids if number not in known]
        if missing:
            whose = f"job {job!r}" if job else "the bulk jobs of this application"
            raise NoSuchLetter(f"there is no dead letter {', '.join(map(str, missing))} of {whose}; nothing was done")
        twice = sorted({number for number in known if known.count(number) > 1})
        if twice:
            raise ConfigurationError(
                f"number {twice[0]} means a letter in each of several databases; say which job's by "
                f"{'--step' if job else '--job, and if need be --step'}"
            )
        return found


def bulk_named(name: str, bulks: Mapping[str, BulkJob], jobs: Container[str]) -> BulkJob:
    """Return a bulk job of the application; refuse any other name with a suggestion."""
    found = bulks.get(name)
    if found is not None:
        return found
    if name in jobs:
        raise ConfigurationError(f"job {name!r} is no bulk job; {suggestion(name, bulks)}")
    raise NotInLedger(f"the application has no bulk job {name!r}; {suggestion(name, bulks)}")


def _chosen(ids: Iterable[int], *, all_new: bool) -> list[int]:
    """Return the given ids; an empty list stands for all, which needs `all_new`."""
    given = sorted(set(ids))
    if all_new and given:
        raise InvalidParameters("give the numbers of letters, or all_new=True; not both")
    if not all_new and not given:
        raise InvalidParameters("which letters? Give their numbers, or all_new=True for all that are new")
    return given


def _refuse_settled(found: Sequence[Found]) -> None:
    settled = [each.letter for each in found if each.letter.state != NEW]
    if settled:
        named = ", ".join(f"{each.id} was {each.state}" for each in settled[:5])
        raise ConfigurationError(f"only letters that are new can be replayed or dropped: {named}; nothing was done")


def _refuse_unfit(found: Sequence[Found]) -> None:
    _refuse_settled(found)
    for each in found:
        if not each.letter.can_be_replayed:
            each.letter.item()  # raises an error that says why


def _pages_of(found: Iterator[Found]) -> Iterator[list[Found]]:
    """Group consecutive letters of one database into pages of at most `_PAGE`."""
    page: list[Found] = []
    for each in found:
        if page and (len(page) == _PAGE or page[0].database is not each.database):
            yield page
            page = []
        page.append(each)
    if page:
        yield page
