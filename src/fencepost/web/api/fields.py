"""The parameters that routes share, each with its bounds, and what all bodies have in common."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from fencepost.core.duration import typed_seconds

LARGEST_ID = 2**63 - 1  # ids are signed 64-bit integers in every database
MOST_ON_A_PAGE = 500  # bounds what one request reads and answers; `next` leads to the rest
_NAME, _TEXT = 160, 1_000  # characters: the longest names are the ids of schedules; a reason is a few sentences

RunId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="The id of a run.", examples=[42])]
Limit = Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE, description="How many at most.")]
Edge = Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="An id: what is beyond it is shown.")]
JobFilter = Annotated[str | None, Query(max_length=_NAME, description="Only of this job.", examples=["settle"])]
TextFilter = Annotated[str | None, Query(max_length=_NAME)]
TimeFilter = Annotated[
    str | None, Query(max_length=40, description="A time with its zone.", examples=["2026-03-29T01:00:00Z"])
]
ReasonQuery = Annotated[str | None, Query(max_length=_TEXT, description="Why, for the record.")]

Name = Annotated[str, Field(min_length=1, max_length=_NAME)]
Text = Annotated[str, Field(max_length=_TEXT)]
Id = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Time = Annotated[str, Field(max_length=40, examples=["2026-03-29T01:00:00Z"])]
Duration = Annotated[str, Field(max_length=40, description="A duration with its unit.", examples=["2h", "90d"])]
JobNames = Annotated[list[Name], Field(min_length=1, max_length=500)]


def need_unit(duration: str | None, what: str) -> None:
    """Refuse what is no duration: as on the command line, a number needs its unit."""
    if duration is not None:
        typed_seconds(duration, what=what)


class Body(BaseModel):
    """A body: fields that it does not have are refused, and values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Reasoned(Body):
    """Why something is done, for the record."""

    reason: Text | None = Field(default=None, examples=["the disk is back"])


class Paused(Reasoned):
    """A pause: why, and when it ends by itself, as a time or as a duration."""

    until: Time | None = None
    duration: Duration | None = None


class NeedsReason(Body):
    """Why something is done: this act needs a reason."""

    reason: Annotated[str, Field(min_length=1, max_length=_TEXT, examples=["the disk is back"])]
