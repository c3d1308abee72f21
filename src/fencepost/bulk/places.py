"""Where the steps of a run read and write, and what their queries may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.bulk.reader import Surroundings
from fencepost.bulk.reading import Places
from fencepost.engine.engines import engine_of

if TYPE_CHECKING:
    from fencepost.bulk.definition import Step
    from fencepost.bulk.instance import Instance
    from fencepost.engine.run import Run

_PLACES = Places()


def target_of_step(step: Step, run: Run) -> Any:
    """Return the engine that a step writes to; that of the ledger's own database if none is named."""
    return _PLACES.engine(step.options.target, lambda: engine_of(run.context.ledger()))


def surroundings_of(step: Step, run: Run, instance: Instance) -> Surroundings:
    """Return what the reader of a step works with."""
    needs_source = step.read is not None and step.read.needs_source
    source = _PLACES.engine(step.options.source, lambda: engine_of(run.context.ledger())) if needs_source else None
    return Surroundings(run.context.runtime, source, instance.values, run.log.warning)
