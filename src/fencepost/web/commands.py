"""What a page shows or does, as a line for a shell: each word quoted, and no secret in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping


def shell_line(*words: object) -> str:
    """Return a command line; each word is quoted where the shell would read it otherwise. None is left out."""
    return shlex.join(str(word) for word in words if word is not None)


def curl_line(url: str, fields: Mapping[str, object] | None = None) -> str:
    """Return the same as a request by curl, with the API token from the environment: its value is never on a page."""
    words = ["curl", "--fail-with-body", "-sS", "-H", '"Authorization: Bearer $FENCEPOST_TOKEN"']
    for name, value in (fields or {}).items():
        words += ["--data-urlencode", shlex.quote(f"{name}={value}")]
    return " ".join([*words, shlex.quote(url)])
