"""`Secret[str]`: a parameter that is the name of a secret. Its value exists only in the process that runs the job.

::

    @app.job
    def charge(run: Run, api_key: Secret[str]) -> None:
        pay(api_key.reveal())

    charge.enqueue(api_key=Secret("stripe-live"))

The ledger has the name. The value is looked up just before the function is called (``App(secrets=…)``). From then on it
is masked wherever this process, or its supervisor, writes a text: see `fencepost.core.masked_values`.

**Promises.** ``repr``, ``str``, f-strings and logging show the name. A `Secret` cannot be stored as JSON or pickled.
"""

from __future__ import annotations

import re
from typing import Any, Final, Generic, NoReturn, TypeVar

from fencepost.errors import InvalidParameters, SecretUnavailable

T_co = TypeVar("T_co", covariant=True)
LONGEST_NAME = 100  # characters
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}")
_NOTHING: Final = object()


class Secret(Generic[T_co]):
    """The name of a secret, and in a running job its value."""

    __slots__ = ("_name", "_value")

    def __init__(self: Secret[str], name: str) -> None:
        """Name a secret: letters, digits, ``_``, ``-`` and ``.``, at most 100."""
        self._name = secret_name(name)
        self._value: Any = _NOTHING

    @staticmethod
    def of(value: str, name: str = "test") -> Secret[str]:
        """Return one that has its value already, to call the plain function in tests."""
        made = Secret(name)
        made._value = value
        return made

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def is_resolved(self) -> bool:
        """Whether it has its value: so it is in the arguments of a running job, and nowhere else."""
        return self._value is not _NOTHING

    def reveal(self) -> T_co:
        """Return the value."""
        if self._value is _NOTHING:
            raise SecretUnavailable(f"secret {self._name!r} has a value only in the arguments of a running job")
        value: T_co = self._value
        return value

    def __repr__(self) -> str:
        return f"Secret({self._name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._name == other._name and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._name)

    def __copy__(self) -> Secret[T_co]:
        return self

    def __deepcopy__(self, _: Any) -> Secret[T_co]:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: pass its name, or the value that reveal() returns")


def secret_name(name: object) -> str:
    """Return the name of a secret, or refuse it without repeating it: it may be the value, by mistake."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameters(
            f"a secret is given by its name, not by its value: 1 to {LONGEST_NAME} letters, digits, '_', '-' and '.'"
        )
    return name
