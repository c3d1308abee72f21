"""The reading rule: which tables a version can work with, even if a newer version has changed them.

Every migration step is named by its number. The name of a step that only adds something also says which older versions
can still work with the tables after it::

    0007              only versions that know step 0007 can work with these tables
    0007_from_0004    versions that know step 0004 or a later one can, even if they do not know step 0007

The name is stored in the table of revisions and changes in the transaction of the step, so no version can see the
tables of a step without its rule. Versions that run together during a deploy, and a roll-back to the previous version,
depend on it: a node and each of its worker processes check the rule when they start.

A step that removes something *contracts*: its oldest reader is later than that of the previous step, and it is
recognized by that. It must not run while a living node needs what it removes. To make this visible, nodes record the
steps that they know, of the ledger and of the tables of effects, after their version: ``1.4.0/0007/0003``.
"""

from __future__ import annotations

import itertools
import math
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path

_STEP = re.compile(r"r(\d{4}(?:_from_\d{4})?)_(?!from_)\w+")


def steps_in(folder: Path) -> tuple[str, ...]:
    """Return the steps whose files are in a folder, oldest first: ``r0007_from_0004_what_it_is_about.py``.

    A file with another name is refused: a step that is passed over in silence would be missed on users' databases. The
    folder may be in a zip file.
    """
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
    steps = [match[1] if (match := _STEP.fullmatch(name)) is not None else name for name in names]
    numbers = [int(step[:4]) if step[:4].isdecimal() else -1 for step in steps]
    if numbers != list(range(1, len(numbers) + 1)):
        raise RuntimeError(f"steps are named r0001_what.py or r0002_from_0001_what.py, each number once; not {names}")
    return tuple(steps)


def oldest_workable(known: Sequence[str]) -> str:
    """Return the step that tables must have for a version that knows `known`: the last one that only adds."""
    return next(each for each in reversed(known) if not contracts(each, known))


def is_readable(revision: str, known: Sequence[str]) -> bool:
    """Return whether a version that knows the steps `known` (oldest first) can work with tables of `revision`.

    True for every step that it knows; the caller decides how old these may be.
    """
    return revision in known or oldest_reader(revision) <= number(known[-1])


def is_newer(revision: str, known: Sequence[str]) -> bool:
    """Return whether tables of `revision` were written by a version that is newer than the steps `known`."""
    return revision not in known


def contracts(revision: str, known: Sequence[str]) -> bool:
    """Return whether a step of `known` removes something that readers of the previous step need.

    Steps without a rule are older than the rule, and none of them contracts.
    """
    before = known[: known.index(revision)]
    return "_from_" in revision and bool(before) and oldest_reader(revision) > oldest_reader(before[-1])


def missing_steps(revision: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return the steps of `known` that tables of `revision` lack: all if there are no tables, none if it is newer."""
    if revision is None:
        return tuple(known)
    return () if is_newer(revision, known) else tuple(known[known.index(revision) + 1 :])


def expanding_steps(missing: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the steps of `missing` that can run beside older nodes: those before the first that contracts."""
    return tuple(itertools.takewhile(lambda each: not contracts(each, known), missing))


def recorded(version: str, newest: str, newest_of_effects: str = "") -> str:
    """Return a node's version together with the steps that it knows, as it is recorded."""
    effects = f"/{number(newest_of_effects):04}" if newest_of_effects else ""
    return f"{version}/{number(newest):04}{effects}"


def known_by(recorded_version: str) -> int:
    """Return the number of the newest step of the ledger that a node knows; 0 for a node that did not record any."""
    return _part(recorded_version, 1)


def known_of_effects_by(recorded_version: str) -> int:
    """Return the same for the tables of effects."""
    return _part(recorded_version, 2)


def number(revision: str) -> int:
    """Return the number of a step."""
    return int(revision.partition("_from_")[0])


def oldest_reader(revision: str) -> float:
    """Return the oldest step that a version must know to work with tables of `revision`; infinity if it is not ours."""
    own, _, oldest = revision.partition("_from_")
    oldest = oldest or own
    return int(oldest) if oldest.isdecimal() else math.inf


def _part(recorded_version: str, index: int) -> int:
    parts = recorded_version.split("/")
    return int(parts[index]) if len(parts) > index and parts[index].isdecimal() else 0
