"""The Lua scripts, in `lua/`: each is one atomic step on the server, by the server's clock."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

Word = str | bytes | int
Command = tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A script, called by its digest. The text is sent only if the server does not have it in its cache."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())

    def call(self, key: str, *arguments: Word) -> Command:
        """Return the command that runs it on one record."""
        return ("EVALSHA", self.digest, 1, key, *arguments)

    def call_many(self, keys: Sequence[str], arguments: Sequence[Word]) -> Command:
        """Return the command that runs it on several records."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)


def _load(name: str) -> Script:
    folder = files(__package__) / "lua"
    return Script("".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("clock", name)))


ACQUIRE = _load("acquire")
RELEASE = _load("release")
RENEW = _load("renew")
FREE = _load("free")
READ = _load("read")
WAITING = _load("waiting")
PROBE = _load("probe")
RESET = _load("reset")

_ALL = {script.digest: script for script in (ACQUIRE, RELEASE, RENEW, FREE, READ, WAITING, PROBE, RESET)}


def spelled_out(command: Command) -> Command:
    """Return the same call with the script's text instead of its digest; the server then caches it."""
    return ("EVAL", _ALL[str(command[1])].text, *command[2:])
