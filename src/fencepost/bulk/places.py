"""Which databases the steps of a run read and write, and which parameters their queries may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fencepost.bulk.pools import refuse_too_few_connections
from fencepost.bulk.reader import Surroundings
from fencepost.bulk.reading import Places
from fencepost.engine.engines import engine_of
from fencepost.engine.run import attempt_of

if TYPE_CHECKING:
    from fencepost.bulk.definition import Bulk, Step
    from fencepost.bulk.instance import Instance
    from fencepost.engine.run import Run
    from fencepost.ledger.ledger import Ledger

_PLACES = Places()


def target_of_step(step: Step, run: Run) -> Any:
    """Return the engine that a step writes to; by default that of the ledger's own database."""
    return _PLACES.engine(step.options.target, lambda: engine_of(attempt_of(run).context.ledger()))


def target_beside(step: Step, ledger: Ledger) -> Any:
    """Return the same without a run, for operators."""
    return _PLACES.engine(step.options.target, lambda: engine_of(ledger))


def targets_of(bulk: Bulk, ledger: Ledger, *, step: str = "") -> list[Any]:
    """Return the engines that the steps of a job write to, one for each database; with `step`, of that step only."""
    steps = bulk.steps if not step else (bulk.step(step),)
    found: dict[Any, Any] = {}
    for each in steps:
        if each.work is None:
            target = target_beside(each, ledger)
            found.setdefault(database_of(target), target)
    return list(found.values())


def database_of(target: Any) -> Any:
    """Return a value that identifies the database, as far as its URL does."""
    url = getattr(target, "url", None)
    if url is None or not hasattr(url, "get_backend_name"):
        return id(target)
    kind = {"mariadb": "mysql"}.get(url.get_backend_name(), url.get_backend_name())
    return kind, url.host, url.port, url.database, None if url.database else id(target)


def surroundings_beside(step: Step, ledger: Ledger, values: Mapping[str, Any]) -> Surroundings:
    """Return the surroundings of a step's reader without a run, for operators."""
    needs_source = step.read is not None and step.read.needs_source
    source = _PLACES.engine(step.options.source, lambda: engine_of(ledger)) if needs_source else None
    return Surroundings(ledger.runtime, source, values)


def surroundings_of(step: Step, run: Run, instance: Instance) -> Surroundings:
    """Return the surroundings of a step's reader."""
    needs_source = step.read is not None and step.read.needs_source
    context = attempt_of(run).context
    source = _PLACES.engine(step.options.source, lambda: engine_of(context.ledger())) if needs_source else None
    refuse_too_few_connections(source, target_of_step(step, run))
    return Surroundings(context.runtime, source, instance.values, run.log.warning)
