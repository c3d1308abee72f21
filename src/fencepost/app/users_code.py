"""Calls the user's code outside a run and turns its exceptions into one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fencepost.core.report import code_of
from fencepost.core.texts import beginning
from fencepost.errors import ConfigurationError, FencepostError

if TYPE_CHECKING:
    from fencepost.app.bulk import BulkJob
    from fencepost.bulk.definition import Bulk

_LONGEST_CAUSE = 300  # characters: enough to recognise the error without a page of SQL


def made_with(job: BulkJob, params: Mapping[str, Any]) -> Bulk:
    """Return a bulk job with these parameters."""
    with explained(f"bulk job {job.name!r} cannot be made with {dict(params)!r}: its own code"):
        return job.declared.make(**params)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Convert exceptions of the user's code, or of a database that it reads from, to `ConfigurationError`."""
    try:
        yield
    except FencepostError:
        raise
    except Exception as error:
        cause = beginning(f"{code_of(error)}: {error}", _LONGEST_CAUSE)
        raise ConfigurationError(f"{what} failed with {cause}") from error
