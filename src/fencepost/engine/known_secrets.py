"""Where values of secrets are, unless the application has a function of its own: the environment, and a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from fencepost.core.secret import Secret

SecretSource = Callable[[str], str]
"""Returns the value of a secret by its name, or raises `LookupError`."""

VARIABLE = "FENCEPOST_SECRET_"
FOLDER = "FENCEPOST_SECRETS_DIR"
_USUAL_FOLDER = "/run/secrets"


def known_secret(name: str) -> str:
    """Look a secret up: the environment variable ``FENCEPOST_SECRET_<NAME>``, else a file of its name.

    In the variable's name, letters are upper case, and what is neither letter nor digit is an underscore. Files are in
    ``/run/secrets``, or where ``FENCEPOST_SECRETS_DIR`` says; a line break at the end does not count.
    """
    found = os.environ.get(variable_of(name))
    if found is not None:
        return found
    try:
        return file_of(name).read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except FileNotFoundError:
        raise LookupError(name) from None


def variable_of(name: str) -> str:
    """Return the name of the environment variable of a secret."""
    return VARIABLE + re.sub(r"[^A-Z0-9]", "_", name.upper())


def file_of(name: str) -> Path:
    """Return where the file of a secret is."""
    return Path(os.environ.get(FOLDER, _USUAL_FOLDER)) / Secret(name).name  # a name has no slash, and is not ".."
