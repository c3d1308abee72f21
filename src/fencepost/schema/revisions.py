"""The reading rule: which tables a version can work with, also when a newer version has changed them.

Every step of migration is named by its number. A step that only adds says in its name which older versions can go on
working with the tables that it leaves behind::

    0007              only versions that know step 0007 can work with these tables
    0007_from_0004    versions that know step 0004 or a later one can, although they have never heard of step 0007

The name stands in the table of revisions and changes in the transaction of the step, so that no version can see the
tables of a step without its rule. Versions that run together during a deploy, and a roll-back to the version before,
depend on it: a node asks the rule when it starts, and so does each of its worker processes.

A step that takes something away *contracts*: its oldest reader is later than that of the step before, and that is
how it is known. It must not run while a node lives that needs what it takes away. So that this can be seen, nodes
record the steps that they know behind their version, of the ledger and of the tables of effects: ``1.4.0/0007/0003``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def is_readable(revision: str, known: Sequence[str]) -> bool:
    """Return whether a version that knows the steps `known` (oldest first) can work with tables of `revision`.

    True of every step that it knows: how old these may be is for the caller to say.
    """
    return revision in known or oldest_reader(revision) <= number(known[-1])


def is_newer(revision: str, known: Sequence[str]) -> bool:
    """Return whether tables of `revision` were made by a version that is newer than the steps `known`."""
    return revision not in known


def contracts(revision: str, known: Sequence[str]) -> bool:
    """Return whether a step of `known` takes something away that versions need which could read the step before.

    Steps without a rule are older than the rule, and none of them did.
    """
    before = known[: known.index(revision)]
    return "_from_" in revision and bool(before) and oldest_reader(revision) > oldest_reader(before[-1])


def missing_steps(revision: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return the steps of `known` that tables of `revision` lack: all if there are no tables, none if it is newer."""
    if revision is None:
        return tuple(known)
    return () if is_newer(revision, known) else tuple(known[known.index(revision) + 1 :])


def expanding_steps(missing: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the steps of `missing` that may be taken beside older nodes: those before the first that contracts."""
    return tuple(itertools.takewhile(lambda each: not contracts(each, known), missing))


def recorded(version: str, newest: str, newest_of_effects: str = "") -> str:
    """Return how a node records its version, and the steps that it knows."""
    effects = f"/{number(newest_of_effects):04}" if newest_of_effects else ""
    return f"{version}/{number(newest):04}{effects}"


def known_by(recorded_version: str) -> int:
    """Return the number of the newest step of the ledger that a node knows; 0 for a node that did not record any."""
    return _part(recorded_version, 1)


def known_of_effects_by(recorded_version: str) -> int:
    """Return the same of the tables of effects."""
    return _part(recorded_version, 2)


def number(revision: str) -> int:
    """Return the number of a step."""
    return int(revision.partition("_from_")[0])


def oldest_reader(revision: str) -> float:
    """Return the oldest step that a version must know to work with tables of `revision`: none, if it is not ours."""
    own, _, oldest = revision.partition("_from_")
    oldest = oldest or own
    return int(oldest) if oldest.isdecimal() else math.inf


def _part(recorded_version: str, index: int) -> int:
    parts = recorded_version.split("/")
    return int(parts[index]) if len(parts) > index and parts[index].isdecimal() else 0
