"""A repetition with other parameters, as it is recorded: checked like a request, and about the same window.

`fencepost.ledger.changed_runs` says what it has in common with the run that it repeats, and what not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fencepost.core.identity import canonical_json, request_hash
from fencepost.core.overlap import exclusive_key
from fencepost.core.search_keys import search_keys
from fencepost.engine.requesting import refuse_secret_values
from fencepost.errors import InvalidParameters
from fencepost.ledger.requests import repetition

if TYPE_CHECKING:
    from fencepost.core.runs import Requested
    from fencepost.engine.requesting import KnownJob
    from fencepost.ledger.history import RunRow
    from fencepost.ledger.requests import RunCheck

_PART = "part:"


def changed_request(
    row: RunRow, params: Mapping[str, Any], check: RunCheck, known: Callable[[str], KnownJob]
) -> Requested:
    """Return the repetition of `row` with `params` in place of its parameters.

    Raise if `check` refuses the run, or if the job, as it is known now, does not take these parameters.
    """
    check(row)
    job = known(row.job)
    if job.parent is not None or (row.origin_key or "").startswith(_PART):
        raise InvalidParameters(
            f"run {row.id} is a part of another job's work, and its parameters say which part: it can be repeated as "
            "it is. To do the work with other parameters, repeat the run that it is a part of"
        )
    stored = job.signature.validate(params, job=job.name)
    text = canonical_json(stored)
    refuse_secret_values(f"job {job.name!r}", params=text)
    window_us: Any = None if row.window_end is None else (row.window_start, row.window_end)
    return repetition(row)._replace(
        params=text,
        params_hash=request_hash(job.policy.known_as(job.name), stored, window_us=window_us),
        exclusive_key=_key(row, job, stored),
        search=search_keys(job.policy.search, stored),
    )


def _key(row: RunRow, job: KnownJob, params: Mapping[str, Any]) -> str | None:
    """Return the exclusive key: by the parameters where the job says so, else that of the run that is repeated."""
    return row.exclusive_key if job.policy.exclusive is None else exclusive_key(job.name, job.policy, params)
