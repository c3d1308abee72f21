"""Secrets of a run: their values are looked up by name, in the process that runs the job, just before it is called.

The application says where (``App(secrets=…)``): a function of a name that returns the value, and raises `LookupError`
if there is no such secret. Without one, `known_secret` looks into the environment, and into a folder of files.

**Promises.** A value is masked in this process, and where there is a supervisor in that one, before the job gets it. An
unknown name ends the run at once, without retries. Any other error is a failure, retried as the policy says. No message
has the value, nor what the application's function raised: only of which class that was.

**Not promised.** That a value is up to date while a run goes on: it is looked up once per attempt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fencepost.core.masked_values import LONGEST, MASKED, SHORTEST
from fencepost.core.parameters import Signature
from fencepost.core.secret import Secret
from fencepost.errors import NoSuchSecret, SecretUnavailable

SecretSource = Callable[[str], str]
"""Returns the value of a secret by its name, or raises `LookupError`."""

VARIABLE = "FENCEPOST_SECRET_"
FOLDER = "FENCEPOST_SECRETS_DIR"
_USUAL_FOLDER = "/run/secrets"


def resolved(signature: Signature, arguments: Mapping[str, Any], source: SecretSource) -> dict[str, Any]:
    """Return the arguments of a call, the secrets among them and among the defaults with their values."""
    found = dict(arguments)
    for parameter in signature.secrets:
        secret = found.get(parameter.name, parameter.default)
        if isinstance(secret, Secret) and not secret.is_resolved:
            found[parameter.name] = Secret.of(_value(secret.name, parameter.name, source), secret.name)
    return found


def _value(name: str, parameter: str, source: SecretSource) -> str:
    what = f"secret {name!r} of parameter {parameter!r}"  # no colon after it, or what follows looks like its value
    try:
        value: object = source(name)
    except NoSuchSecret:
        raise
    except LookupError:
        raise NoSuchSecret(f"there is no {what} on this node; {_looked_for(name, source)}") from None
    except Exception as error:  # noqa: BLE001 - its text may have what nobody may see
        raise SecretUnavailable(f"{what} could not be looked up: {type(error).__name__}") from None
    if not isinstance(value, str):
        raise SecretUnavailable(f"{what} was looked up, but is no text: {type(value).__name__}")
    if not SHORTEST <= len(value) <= LONGEST:
        raise SecretUnavailable(
            f"{what} has {len(value)} characters: it could not be masked unless it has {SHORTEST} to {LONGEST}"
        )
    MASKED.add(value)
    return value


def _looked_for(name: str, source: SecretSource) -> str:
    """Say where a secret was looked for."""
    if source is not known_secret:
        return "the application's own function for secrets does not know it"
    return f"neither the environment variable {_variable(name)} nor the file {_file(name)} is there"


def known_secret(name: str) -> str:
    """Look a secret up: the environment variable ``FENCEPOST_SECRET_<NAME>``, else a file of its name.

    In the variable's name, letters are upper case, and what is neither letter nor digit is an underscore. Files are in
    ``/run/secrets``, or where ``FENCEPOST_SECRETS_DIR`` says; a line break at the end does not count.
    """
    found = os.environ.get(_variable(name))
    if found is not None:
        return found
    try:
        return _file(name).read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except FileNotFoundError:
        raise LookupError(name) from None


def _variable(name: str) -> str:
    return VARIABLE + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _file(name: str) -> Path:
    return Path(os.environ.get(FOLDER, _USUAL_FOLDER)) / Secret(name).name  # a name has no slash, and is not ".."
