"""Where built servers are kept, outside the tree."""

import os
from pathlib import Path


def directory() -> Path:
    """``$FENCEPOST_TEST_CACHE``, or ``fencepost-testbed`` in the user's cache folder; need not exist yet."""
    if chosen := os.environ.get("FENCEPOST_TEST_CACHE"):
        return Path(chosen).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "fencepost-testbed"
    return Path.home() / ".cache" / "fencepost-testbed"
