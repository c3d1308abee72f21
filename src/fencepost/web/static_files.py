"""The style, the script and the picture of the pages, read once. A name is in the table or not: there is no path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    "fencepost.css": "text/css; charset=utf-8",
    "fencepost.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@lru_cache(maxsize=1)
def static_files() -> Mapping[str, tuple[str, bytes]]:
    """Return the files by their names, each with its type."""
    return {name: (kind, (_FOLDER / name).read_bytes()) for name, kind in _TYPES.items()}


@lru_cache(maxsize=1)
def static_version() -> str:
    """Return what changes with any of the files, so that browsers can keep them for good."""
    digest = hashlib.sha256()
    for name, (_, content) in sorted(static_files().items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()[:12]
