"""From ``package.module:app`` to the application, or an error message that says why it cannot be loaded."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

from fencepost.core.nearest import suggestion
from fencepost.core.texts import beginning
from fencepost.engine.context import RunContext
from fencepost.engine.jobs import Jobs
from fencepost.errors import InvalidApp

_DEFAULT_NAME = "app"
_LONGEST_CAUSE = 500  # one line of a log
_HERE = f"{Path(__file__).parents[1]}{os.sep}"


class Application(Protocol):
    """What the engine needs from an application."""

    @property
    def jobs(self) -> Jobs:
        """The jobs of the application."""
        ...

    def worker_context(self) -> RunContext:
        """Return the context of runs in a worker process. The worker replaces its `standing`."""
        ...


def load_app(spec: str, *, modules: Sequence[str] = ()) -> Application:
    """Import ``module:attribute`` (``:app`` may be left out) and return the application it names.

    The current folder is searched first, as with ``python -m``, except in a worker, which has its supervisor's path.
    `modules` are imported as well, because they declare jobs.
    """
    module_name, attribute = _parts(spec)
    if not ThisProcess.is_worker and os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    found = _checked(_attribute(_module(module_name, spec), attribute, spec), spec)
    for name in modules:
        _module(name, spec)
    return found


class ThisProcess:
    """Whether this process is a worker: a worker of a node must not become a node with its own workers."""

    is_worker = False


def _parts(spec: str) -> tuple[str, str]:
    module_name, _, attribute = spec.partition(":")
    attribute = attribute or _DEFAULT_NAME
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise InvalidApp(f"{spec!r} is a path; name the module instead, as in {f'{dotted}:{attribute}'!r}")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise InvalidApp(f"{spec!r} does not name an application; write 'package.module:app'")
    return module_name, attribute


def _module(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidApp(
                f"cannot load {spec!r}: no module named {error.name!r} in {os.getcwd()} or on the Python path; start "
                "in the folder that holds it, or set PYTHONPATH"
            ) from None
        raise _import_failed(name, spec, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(name, spec, error) from error


def _import_failed(name: str, spec: str, error: BaseException) -> InvalidApp:
    cause = beginning(f"{type(error).__name__}: {error}", _LONGEST_CAUSE)
    return InvalidApp(f"cannot load {spec!r}: importing {name!r} failed{_place(error)} with {cause}")


def _place(error: BaseException) -> str:
    """Return where an error happened: the last line of the user's code, not of the import system or of Fencepost."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _is_ours(filename: str) -> bool:
    return "importlib" in filename or filename.startswith(_HERE)


def _attribute(module: ModuleType, attribute: str, spec: str) -> object:
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            lacks = f"module {module.__name__!r} has no attribute {attribute!r}"
            raise InvalidApp(f"cannot load {spec!r}: {lacks}; {_it_has(module, name)}")
        found = getattr(found, name)
    return found


def _it_has(module: ModuleType, wanted: str) -> str:
    apps = sorted(name for name, value in vars(module).items() if _is_app(value))
    if apps:
        return f"it has: {', '.join(apps)}"
    return suggestion(wanted, [name for name in vars(module) if not name.startswith("_")])


def _checked(found: object, spec: str) -> Application:
    if not _is_app(found):
        raise InvalidApp(f"{spec!r} is not an App but of type {type(found).__name__}; make one: app = fencepost.App()")
    return found  # type: ignore[return-value]


def _is_app(value: object) -> bool:
    return isinstance(getattr(value, "jobs", None), Jobs) and callable(getattr(value, "worker_context", None))
