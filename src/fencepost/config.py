"""Settings from a file, the environment and arguments. Arguments override the environment, which overrides the file.

- The file is ``fencepost.toml``, or the table ``[tool.fencepost]`` of ``pyproject.toml``, in the working directory; or
  the file that ``FENCEPOST_CONFIG`` or ``App(config=…)`` names.
- Each setting has an environment variable: ``FENCEPOST_URL``, ``FENCEPOST_TTL``, ``FENCEPOST_QUEUES=mail,default``. An
  empty variable counts as not set.
- The arguments are those of ``App(…)``.

::

    url = "postgresql://db/app"
    ttl = "20s"

    [retention]                 # how long ended runs are kept; "forever" never deletes them
    succeeded = "7d"

    [jobs.settle]               # overrides the options in the code; for operators
    timeout = "10m"

**Promises.** An unknown setting in the file or an unknown argument is an error that suggests the most similar name. An
unknown variable (``FENCEPOST_UL``) is only reported, with the most similar name, in the log of a node and by commands:
other programs may have set it. Every error says where the value was set. No message contains a password.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fencepost.core.duration import seconds, spelled
from fencepost.core.identity import job_name, queue_name
from fencepost.core.nearest import suggestion
from fencepost.core.timings import DEFAULT_TTL_S, Timings
from fencepost.core.urls import StoreUrl, absolute_url
from fencepost.errors import ConfigurationError, InvalidDuration, InvalidSetting
from fencepost.ledger.pruning import Retention

DEFAULT_URL = "sqlite:///fencepost.db"
CONFIG_VARIABLE = "FENCEPOST_CONFIG"
_TABLES = ("jobs", "retention")
_PREFIX = "FENCEPOST_"
# Read by commands, and by workers.
_OTHER_VARIABLES = ("FENCEPOST_STORE", "FENCEPOST_SERVER", "FENCEPOST_PROXY_SECRET", "FENCEPOST_SECRETS_DIR")
# Variables that Fencepost sets for programs, those of its own tests, and those of a Kubernetes service of this name.
_NOT_MEANT_FOR_US = re.compile(
    r"^FENCEPOST_(JOB|RUN|ATTEMPT|TOKEN|PARAMS|SCHEDULE|DUE_AT|WINDOW_START|WINDOW_END|LOCK|GRANT|TICK)$"
    r"|^FENCEPOST_(TEST|CHAOS|INTERLEAVE|MUTANT|SECRET_)"
    r"|_SERVICE_(HOST|PORT)(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?$"
)
_BY_DEFAULT = "default"


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of an application, and where each value was set."""

    url: str = field(default=DEFAULT_URL, repr=False)
    app: str | None = None  # the application that commands use if none is named
    leases: str | None = field(default=None, repr=False)
    name: str | None = None
    ttl_s: float = DEFAULT_TTL_S
    slots: int | None = None  # None: the runner chooses
    queues: tuple[str, ...] = ("default",)
    generation: int = 0
    leader: bool = False
    logs: str = "on"
    retention: Retention = field(default_factory=Retention)
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing)
    sources: Mapping[str, str] = field(default_factory=_nothing, compare=False)

    @property
    def timings(self) -> Timings:
        """The timings of the node's session, scaled from the ttl."""
        return Timings.of(self.ttl_s)

    def resolved(self) -> Settings:
        """Return the same with absolute URLs, so that they mean the same after a change of the working directory."""
        leases = None if self.leases is None else absolute_url(self.leases)
        return replace(self, url=absolute_url(self.url), leases=leases)

    def source_of(self, name: str) -> str:
        """Return where a setting was set: a file, a variable, an argument, or ``default``."""
        return self.sources.get(name, _BY_DEFAULT)

    def shown(self) -> list[tuple[str, str, str]]:
        """Return every setting as (name, value, source), without passwords."""
        return [(name, kind.show(getattr(self, kind.field)), self.source_of(name)) for name, kind in KINDS.items()]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One setting: its field in `Settings`, how to parse its value, and how to display it."""

    field: str
    read: Callable[[Any], Any]
    show: Callable[[Any], str] = str


def read_settings(
    arguments: Mapping[str, Any],
    *,
    config: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Collect the settings; an argument that is None counts as not given."""
    variables = os.environ if environ is None else environ
    named = config or variables.get(CONFIG_VARIABLE) or None
    path, table = _table(Path(named) if named else None, directory or Path.cwd())
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, source, value in (*_of_file(path, table), *_of_environment(variables), *_of_arguments(arguments)):
        values[KINDS[name].field], sources[name] = _read(name, source, value), source
    return Settings(
        **values,
        retention=_retention(path, table),
        jobs=_jobs(path, table),
        sources=MappingProxyType(sources),
    )


def _of_file(path: Path | None, table: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    for name in table:
        if name not in KINDS and name not in _TABLES:
            raise InvalidSetting(f"{path}: there is no setting {name!r}; {suggestion(name, [*KINDS, *_TABLES])}")
    return [(name, f"{name} in {path}", value) for name, value in table.items() if name not in _TABLES]


def _of_environment(variables: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    named = ((name, f"FENCEPOST_{name.upper()}") for name in KINDS)
    return [(name, variable, variables[variable]) for name, variable in named if variables.get(variable)]


def unknown_variables(variables: Mapping[str, str]) -> list[str]:
    """Return a sentence for every variable that looks like a setting but is unknown."""
    names = [name for name in variables if name.startswith(_PREFIX)]
    known = [f"{_PREFIX}{name.upper()}" for name in KINDS] + [CONFIG_VARIABLE, *_OTHER_VARIABLES]
    return [
        f"the variable {name} is not known and has no effect; {suggestion(name, known)}"
        for name in sorted(names)
        if name not in known and not _NOT_MEANT_FOR_US.search(name)
    ]


def _of_arguments(arguments: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    return [(name, f"App({name}=…)", value) for name, value in arguments.items() if value is not None]


def _read(name: str, source: str, value: Any) -> Any:
    try:
        return KINDS[name].read(value)
    except InvalidDuration as error:
        raise InvalidSetting(f"{source}: {str(error).removeprefix('duration ')}") from None
    except (ConfigurationError, ValueError) as error:
        raise InvalidSetting(f"{source}: {error}") from None


def _table(path: Path | None, directory: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """Find the settings file and return its table for Fencepost; an empty table if there is no file."""
    if path is not None:
        return path, _section(path, _parsed(path))
    own, shared = directory / "fencepost.toml", directory / "pyproject.toml"
    if own.is_file():
        return own, _parsed(own)
    if shared.is_file() and (table := _section(shared, _parsed(shared))):
        return shared, table
    return None, {}


def _section(path: Path, content: Mapping[str, Any]) -> Mapping[str, Any]:
    if path.name != "pyproject.toml":
        return content
    table = content.get("tool", {}).get("fencepost", {})
    if not isinstance(table, Mapping):
        raise InvalidSetting(f"{path}: tool.fencepost is not a table")
    return table


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSetting(f"{path}: the settings cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path}: this is not valid TOML: {error}") from None


def _retention(path: Path | None, table: Mapping[str, Any]) -> Retention:
    kept = table.get("retention", {})
    if not isinstance(kept, Mapping):
        raise InvalidSetting(f'{path}: write the retention as a table: [retention] succeeded="7d"')
    try:
        return Retention.of(**kept)
    except ConfigurationError as error:
        raise InvalidSetting(f"{path}: [retention]: {error}") from None


def _jobs(path: Path | None, table: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the tables ``[jobs.<name>]``. Their options are validated when the job is declared."""
    jobs = table.get("jobs", {})
    if not isinstance(jobs, Mapping) or not all(isinstance(each, Mapping) for each in jobs.values()):
        raise InvalidSetting(f'{path}: write the settings of a job as [jobs.<name>], as in [jobs.settle] timeout="10m"')
    try:
        return MappingProxyType({job_name(name): MappingProxyType(dict(each)) for name, each in jobs.items()})
    except ConfigurationError as error:
        raise InvalidSetting(f"{path}: [jobs]: {error}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidSetting(f"{value!r} is not a text")
    return value.strip()


def _url(value: Any) -> str:
    if not isinstance(value, str):  # the message omits the value, which may contain a password
        raise InvalidSetting("a URL must be a text, such as postgresql://host/database")
    StoreUrl.parse(value.strip())
    return value.strip()


def _url_shown(value: str | None) -> str:
    return "" if value is None else str(StoreUrl.parse(value))


def _ttl(value: Any) -> float:
    if not isinstance(value, str | int | float) and not hasattr(value, "total_seconds"):
        raise InvalidSetting(f"{value!r} is not a valid duration")
    return Timings.of(seconds(value)).ttl_s


def _number(value: Any, *, least: int) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number < 2**31:
        raise InvalidSetting(f"{value!r} is not a whole number of at least {least}")
    return number


def _flag(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    flag = words.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(flag, bool):
        raise InvalidSetting(f"{value!r} is neither true nor false")
    return flag


def _logs(value: Any) -> str:
    if not isinstance(value, str) or value.strip().lower() not in ("on", "off"):
        raise InvalidSetting(f"{value!r} is neither 'on' nor 'off'")
    return value.strip().lower()


def _queues(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | set | frozenset):
        raise InvalidSetting(f"{value!r} is not a list of queues; write it as mail,default")
    names = [part.strip() if isinstance(part, str) else part for part in parts]
    queues = tuple(dict.fromkeys(queue_name(name) for name in names if name))
    if not queues:
        raise InvalidSetting("name at least one queue; a node without queues would never claim anything")
    return queues


KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "url": _Kind("url", _url, _url_shown),
        "app": _Kind("app", _text, lambda value: value or ""),
        "leases": _Kind("leases", _url, _url_shown),
        "name": _Kind("name", _text, lambda value: value or ""),
        "ttl": _Kind("ttl_s", _ttl, spelled),
        "slots": _Kind("slots", lambda value: _number(value, least=1), lambda value: str(value or "auto")),
        "queues": _Kind("queues", _queues, ",".join),
        "generation": _Kind("generation", lambda value: _number(value, least=0)),
        "leader": _Kind("leader", _flag, lambda value: str(value).lower()),
        "logs": _Kind("logs", _logs),
    }
)
