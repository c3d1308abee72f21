"""Reports where other programs interpret a cron expression differently.

For users who move expressions from or to another program. Fencepost follows Debian's cron (and cronie): if one of the
two day fields begins with a star, also as ``*/2``, a day must match both fields; otherwise one is enough.

===================  =========================================================  =================================
reader               both day fields restricted: a day is due if it matches     and
===================  =========================================================  =================================
Debian's cron, ours  both, if one begins with a star; else either               ours: a sixth field, the second, first
croniter             either, also with ``*/2``                                  a sixth field, the second, last
Kubernetes           either, also with ``*/2``                                  no sixth field, 7, ``L``, ``W``, ``#``
Celery               both, always                                               fields are arguments
===================  =========================================================  =================================
"""

from __future__ import annotations

import re

from fencepost.core.schedules.fields import normalized, six_fields

_MORE_THAN_PLAIN = re.compile(r"L|W|#")
_SEVEN = re.compile(r"(^|[,-])7($|[,/-])")


def disagreements(expression: str) -> tuple[str, ...]:
    """Return a sentence for each point that other programs interpret differently; none for most expressions."""
    text = normalized(expression)
    if text.startswith("@"):
        return ()
    *_, day, _month, weekday = six_fields(text)
    found = [_about_days(day, weekday)]
    if len(text.split()) == 6:
        found.append("six fields: here the second is first; in croniter it is last, and Kubernetes takes only five")
    if _MORE_THAN_PLAIN.search(day) or re.search(r"L$|L,|#", weekday):
        found.append("L, LW and #: not supported by Kubernetes and Debian's cron")
    if _SEVEN.search(weekday):
        found.append(
            "7 as the day of the week: Sunday here and in Debian's cron, refused by Kubernetes; write 0 or SUN"
        )
    return tuple(each for each in found if each)


def _about_days(day: str, weekday: str) -> str:
    if _is_every(day) or _is_every(weekday):
        return ""
    if day.startswith("*") or weekday.startswith("*"):
        return (
            f"the two day fields, {day} and {weekday}: here, in Debian's cron and in Celery a day must match both, "
            "since one of them begins with a star; in croniter and in Kubernetes either is enough"
        )
    return (
        f"the two day fields, {day} and {weekday}: here, in Debian's cron, in croniter and in Kubernetes a day that "
        "matches either is due; in Celery it must match both"
    )


def _is_every(field: str) -> bool:
    return field in ("*", "*/1")
