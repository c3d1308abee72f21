"""Calling code of the user outside a run: what it raises becomes one sentence."""

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

_LONGEST_CAUSE = 300  # characters: enough to recognise the error, and no page of SQL


def made_with(job: BulkJob, params: Mapping[str, Any]) -> Bulk:
    """Return a bulk job as a run with these parameters has it."""
    with explained(f"bulk job {job.name!r} cannot be made with {dict(params)!r}: its own code"):
        return job.declared.make(**params)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise what the user's code, or a database that it reads from, has raised as a `ConfigurationError`."""
    try:
        yield
    except FencepostError:
        raise
    except Exception as error:
        cause = beginning(f"{code_of(error)}: {error}", _LONGEST_CAUSE)
        raise ConfigurationError(f"{what} failed with {cause}") from error
