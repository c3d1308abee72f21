"""What a page shows, for programs: CSV or JSON, up to a bound that the answer names when it is reached."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from fencepost.app.records import LedgerRecord
from fencepost.errors import InvalidParameters

MOST_EXPORTED = 10_000  # as many as one search returns; all of them are in memory at once
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would calculate a cell that begins so


def export(form: str, name: str, records: Sequence[LedgerRecord], columns: Sequence[str], *, is_cut: bool) -> Response:
    """Return records as a file to be downloaded. A header says whether there are more."""
    if form == "json":
        body, kind = json.dumps([each.to_json() for each in records], ensure_ascii=True), "application/json"
    elif form == "csv":
        body, kind = _csv(records, columns), "text/csv; charset=utf-8"
    else:
        raise InvalidParameters(f"there is no export as {form!r}: csv or json")
    headers = {
        "content-disposition": f'attachment; filename="{name}.{form}"',
        "fencepost-truncated": "true" if is_cut else "false",
    }
    return Response(body.encode("utf-8", "replace"), 200, headers, kind)


def _csv(records: Sequence[LedgerRecord], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for each in records:
        said = each.to_json()
        writer.writerow([_cell(said.get(column)) for column in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    spelled = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{spelled}" if isinstance(value, str) and spelled.startswith(_FORMULA) else spelled
