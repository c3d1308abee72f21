"""Secrets of a run: their values are looked up by name, in the process that runs the job, just before it is called.

The application says where (``App(secrets=…)``): a function of a name that returns the value, and raises `LookupError`
if there is no such secret. Without one, `known_secret` looks into the environment, and into a folder of files.

**Promises.** A value is masked in this process, and where there is a supervisor in that one, before the job gets it and
at least until the run has ended. An unknown name ends the run at once, without retries. Any other error is a failure,
retried as the policy says. No message has the value, nor what the application's function raised: only of which class
that was.

**Not promised.** That a value is up to date while a run goes on: it is looked up once per attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.core.masked_values import LONGEST, MASKED, SHORTEST
from fencepost.core.parameters import Signature
from fencepost.core.secret import Secret
from fencepost.engine.known_secrets import SecretSource, file_of, known_secret, variable_of
from fencepost.engine.run import attempt_of, current_run
from fencepost.errors import NoSuchSecret, SecretUnavailable


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
    held = MASKED.add(value)
    if (run := current_run()) is not None:
        attempt_of(run).held += (held,)
    return value


def _looked_for(name: str, source: SecretSource) -> str:
    """Say where a secret was looked for."""
    if source is not known_secret:
        return "the application's own function for secrets does not know it"
    return f"neither the environment variable {variable_of(name)} nor the file {file_of(name)} is there"
