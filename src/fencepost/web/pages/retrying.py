"""Repeating a run with other parameters: a form made from the job's signature, filled with what the run had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from fencepost.app.records.versions import run_version
from fencepost.core.rights import HumanAct
from fencepost.errors import AlreadyRequested, ConfigurationError
from fencepost.web.pages.run import done, reason_of, unchanged
from fencepost.web.parameter_forms import other_parameters, parameter_fields, takes_more, typed_parameters
from fencepost.web.rendering import render
from fencepost.web.routes import PageRoutes

if TYPE_CHECKING:
    from fencepost.app.records import RunRecord
    from fencepost.web.visits import Visit

PAGES = PageRoutes()


@PAGES.get("/runs/{run_id:int}/change", needs=HumanAct.RETRY)
def change_form(visit: Visit) -> Response:
    """Show the form."""
    found = visit.ask.run(visit.where["run_id"])
    stored: Any = found.params  # somebody may have damaged it
    values = stored if isinstance(stored, Mapping) else {}
    return _form(visit, found, values, other_parameters(visit.ask.job(found.job).signature, values))


@PAGES.post("/runs/{run_id:int}/change", needs=HumanAct.RETRY)
def change(visit: Visit) -> Response:
    """Repeat a run with the parameters of the form, which are all that the new run has."""
    found, typed = unchanged(visit, HumanAct.RETRY), typed_parameters(visit.form_list)
    others = visit.form.get("more", "")
    try:
        made = visit.ask.retry(
            found.id,
            params=visit.ask.read_params(found.job, typed, to=HumanAct.RETRY),
            reason=reason_of(visit),
            again=visit.form.get("again") == "on",
            expect=run_version(found),
        )
    except AlreadyRequested as error:
        return _form(visit, found, typed, others, wrong=str(error), status=409, twin=error.run_id)
    except ConfigurationError as error:
        return _form(visit, found, typed, others, wrong=str(error), status=400)
    return done(visit, found.id, "retried", made)


def _form(
    visit: Visit,
    found: RunRecord,
    values: Mapping[str, Any],
    others: str,
    *,
    wrong: str | None = None,
    status: int = 200,
    twin: int | None = None,
) -> Response:
    job = visit.ask.job(found.job)
    return render(
        visit,
        "change.html",
        status=status,
        now=visit.ask.now(),
        run=found,
        job=job,
        fields=parameter_fields(job.signature, values),
        more=takes_more(job.signature),
        others=others,
        wrong=wrong,
        twin=twin,
    )
