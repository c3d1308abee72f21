"""How commands reach an application and its ledger: those that need a job's own code, such as its reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fencepost.cli.ledger_options import opened
from fencepost.core.nearest import suggestion
from fencepost.errors import ConfigurationError, FencepostError

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.app.bulk import BulkJob
    from fencepost.app.operations import Operations
    from fencepost.bulk.definition import Bulk
    from fencepost.ledger.history import RunRow
    from fencepost.ledger.ledger import Ledger

_LONGEST_CAUSE = 300

AppSpec = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="APP",
        help="The application, as package.module:app. Default: $FENCEPOST_APP, else app in fencepost.toml.",
        show_default=False,
    ),
]


class Reached(NamedTuple):
    """An application and its ledger. No node is started, and the application opens nothing itself."""

    app: App
    ledger: Ledger

    @property
    def operations(self) -> Operations:
        """What operators can do."""
        from fencepost.app.operations import Operations  # noqa: PLC0415 - it loads the engine

        return Operations(
            self.ledger, known=self.app.jobs, bulks=self.app.bulks, generation=self.app.settings.generation
        )

    def bulk(self, name: str) -> BulkJob:
        """Return a bulk job of the application, or refuse a name that is none and say which may have been meant."""
        from fencepost.app.letters import bulk_named  # noqa: PLC0415 - it loads the engine

        return bulk_named(name, self.app.bulks, self.app.jobs)

    def bulk_of(self, row: RunRow) -> BulkJob:
        """Return the bulk job that a run is of, itself or as a part."""
        for each in self.app.bulks.values():
            if row.job in each.names:
                return each
        known = suggestion(row.job, self.app.bulks)
        raise ConfigurationError(f"run {row.id} is one of {row.job!r}, which is no bulk job here; {known}")


def app_spec(given: str, *, how: str = "with --app") -> str:
    """Return which application is meant: the one given, or that of the settings. `how` says how one is given."""
    from fencepost.config import read_settings  # noqa: PLC0415 - it loads the ledger

    named = given or read_settings({}).app
    if named is None:
        raise ConfigurationError(
            f"which application? This needs its code: name it as package.module:app, {how}, with FENCEPOST_APP, or "
            "with app = in fencepost.toml"
        )
    return named


@contextmanager
def reached(given: str, ledger: str) -> Iterator[Reached]:
    """Import an application and open its ledger, or the one given; it must be there."""
    from fencepost.app import App  # noqa: PLC0415 - it loads the engine
    from fencepost.engine.engines import close_engine  # noqa: PLC0415
    from fencepost.engine.loading import load_app  # noqa: PLC0415

    spec = app_spec(given)
    app = load_app(spec)
    if not isinstance(app, App):
        raise ConfigurationError(f"{spec!r} is a {type(app).__name__}, and this needs an App")
    with opened(ledger or app.settings.url) as book:
        try:
            yield Reached(app, book)
        finally:
            close_engine(book)


def made_with(job: BulkJob, params: Mapping[str, Any]) -> Bulk:
    """Return a bulk job as a run with these parameters has it."""
    with explained(f"bulk job {job.name!r} cannot be made with {dict(params)!r}: its own code"):
        return job.declared.make(**params)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Tell in a sentence what the user's own code, or a database that it reads from, has raised."""
    from fencepost.core.report import code_of  # noqa: PLC0415 - only these commands run such code
    from fencepost.core.texts import beginning  # noqa: PLC0415

    try:
        yield
    except FencepostError:
        raise
    except Exception as error:
        cause = beginning(f"{code_of(error)}: {error}", _LONGEST_CAUSE)
        raise ConfigurationError(f"{what} failed with {cause}") from error
