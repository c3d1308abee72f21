"""The runners of a node whose jobs execute in worker processes: the default of ``fencepost run``.

Worker processes start as new interpreters, so they import the application by its name, ``package.module:app``.
``fencepost run`` takes the name as its argument. ``app.start(processes=True)`` finds it: it looks for an imported
module that has this application object. Workers also import every module that declares jobs, so that they have the
"""

from __future__ import annotations

import sys
from collections import Counter
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from fencepost.app.composing import Composed, runner_parts, start_node
from fencepost.app.processors import processors
from fencepost.engine.loading import ThisProcess
from fencepost.engine.runners.kinds import KINDS, function_kinds, local_runners
from fencepost.engine.runners.process import ProcessRunner
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app.application import App
    from fencepost.core import runtime
    from fencepost.engine.runners.runner import Runner

_FEWEST_WORKERS = 4  # so that one long run does not hold up the rest on a small machine
_OURS = "fencepost"
_SCRIPTS = ("__main__", "__mp_main__")  # the second: in a child that multiprocessing has spawned
_HELP = (
    "Put it into a module, such as shop/jobs.py, and import it from there: from shop.jobs import app. Or leave "
    "processes=True out: then jobs run on threads of this process"
)


class Imported(NamedTuple):
    """What worker processes import: the application by its name, and modules that declare jobs of it."""

    spec: str
    modules: tuple[str, ...] = ()


def start_process_node(
    app: App,
    imported: Imported | None = None,
    *,
    prepare: str | None = None,
    stop_requested: runtime.Flag | None = None,
) -> Composed:
    """Make a node of `app` that executes jobs in worker processes, and start it; see `start_node`.

    `imported` is what workers import, by default what `importable` finds; `prepare` is a function that they call first,
    as ``module:name``.
    """
    found = imported or (importable(app) if function_kinds(app.jobs) else None)
    return start_node(
        app, lambda: process_runners(app, found, prepare=prepare), slots=workers_of(app), stop_requested=stop_requested
    )


def process_runners(app: App, imported: Imported | None, *, prepare: str | None = None) -> dict[str, Runner]:
    """Return worker processes for functions and coroutines, and the usual runners for all other kinds.

    `imported` may be None where there are no functions.
    """
    in_workers, given = function_kinds(app.jobs), runner_parts(app)
    runners = local_runners(given, KINDS.keys() - in_workers)
    if in_workers and imported is not None:
        workers = ProcessRunner(
            imported.spec,
            modules=imported.modules,
            slots=workers_of(app),
            timings=given.timings,
            runtime=app.runtime,
            timeouts=given.timeouts,
            fenced=given.fenced,
            node=app.node_name,
            prepare=prepare,
            output=given.logs,
            emit=app.emit,
        )
        runners |= dict.fromkeys(in_workers, workers)
    return runners


def workers_of(app: App) -> int:
    """Return how many worker processes to start: as set, or as many as suit this machine."""
    return app.settings.slots or default_workers()


def default_workers() -> int:
    """Return how many worker processes suit this machine, or the quota of this container."""
    return max(_FEWEST_WORKERS, 2 * processors())


# -- how workers import the application --------------------------------------------------------------------------------


def importable(app: App) -> Imported:
    """Return the name by which a worker process imports `app`, and the other modules that it imports.

    Raise `ConfigurationError` if it cannot be imported. Of several modules that have it, take the one that the settings
    name (``FENCEPOST_APP``), else the one that declares most of its jobs, else the one that was imported last.
    """
    if ThisProcess.is_worker:
        raise ConfigurationError(
            "app.start(processes=True) was called in a worker process, while it imported the application: it would "
            "start workers of its own. Call it where your program starts, behind if __name__ == '__main__'"
        )
    names = _names_of(app)
    if not names:
        raise ConfigurationError(
            "app.start(processes=True) runs jobs in processes of their own, which import the application by its name, "
            f"and no module that can be imported has it: was it made in a script, a notebook or a function? {_HELP}"
        )
    declaring = _declaring(app)
    spec = app.settings.app if app.settings.app in names else max(names, key=lambda name: declaring[_module_in(name)])
    return Imported(str(spec), tuple(sorted(set(declaring) - {_module_in(str(spec))})))


def _names_of(app: App) -> list[str]:
    """Return every ``module:name`` that is `app`, the most recently imported module first."""
    return [
        f"{name}:{attribute}"
        for name, module in reversed(list(sys.modules.items()))
        if _can_be_imported(name, module)
        for attribute, value in list(vars(module).items())
        if value is app and attribute.isidentifier()
    ]


def _can_be_imported(name: str, module: object) -> bool:
    """Whether another process can import it: it came from an import and is not a script."""
    is_found = isinstance(module, ModuleType) and getattr(module, "__spec__", None) is not None
    return is_found and name not in _SCRIPTS and name.partition(".")[0] != _OURS


def _declaring(app: App) -> Counter[str]:
    """Return how many jobs each module declares. Refuse a job declared in a script, which workers cannot import."""
    functions = {job.name: job.function for job in app.jobs.values() if KINDS[job.kind].is_function}
    functions |= {name: bulk.declared.given for name, bulk in app.bulks.items()}
    found: Counter[str] = Counter()
    for job, function in functions.items():
        name = app.declared_in.get(job) or getattr(function, "__module__", None) or ""
        if name in _SCRIPTS:
            raise ConfigurationError(
                f"app.start(processes=True) runs jobs in processes of their own, and job {job!r} is declared in a "
                f"script or a notebook, which these cannot import. {_HELP}"
            )
        if _can_be_imported(name, sys.modules.get(name)):
            found[name] += 1
    return found


def _module_in(spec: str) -> str:
    return spec.partition(":")[0]
