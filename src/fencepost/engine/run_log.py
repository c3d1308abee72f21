"""The logger that a run gives to its job."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """The logger ``fencepost.jobs.<job>``; its records have `run`, `attempt`, `token`, `node` and `job`.

    Records of other loggers, made inside a run, get the same fields from the formatters of `fencepost.observe.logs`.
    """

    def __init__(self, job: str, fields: Mapping[str, object]) -> None:
        super().__init__(logging.getLogger(f"fencepost.jobs.{job}"), fields)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields, beside those of the caller."""
        known, given = dict(self.extra or {}), kwargs.get("extra") or {}
        renamed = {f"extra_{name}": value for name, value in given.items() if name in known}
        kwargs["extra"] = {**given, **known, **renamed, "fencepost": known}
        return msg, kwargs
