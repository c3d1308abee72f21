"""The SQL that users write for readers and writers: its words, its ``:names``, and each driver's way to spell them.

Nothing here parses SQL. It is taken apart into quoted texts, comments and the rest, so that a colon within quotes is
left alone and the few words that matter (ORDER BY, LIMIT, OFFSET) are found where they count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_PIECES = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<comment>--[^\n]*|/\*.*?\*/)""",
    re.DOTALL,
)
_NAME = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)")


def _pieces(sql: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a statement, and whether each is SQL, as opposed to quoted or a comment."""
    end = 0
    for found in _PIECES.finditer(sql):
        yield sql[end : found.start()], True
        yield found.group(), False
        end = found.end()
    yield sql[end:], True


def changed(sql: str, change: Callable[[str], str]) -> str:
    """Return a statement with `change` applied to all of it that is neither quoted nor a comment."""
    return "".join(change(text) if is_sql else text for text, is_sql in _pieces(sql))


def bare(sql: str) -> str:
    """Return a statement with what is quoted or a comment blanked out, place for place."""
    return "".join(text if is_sql else " " * len(text) for text, is_sql in _pieces(sql))


def names_in(sql: str) -> tuple[str, ...]:
    """Return the ``:names`` of a statement, each once, in their order."""
    return tuple(dict.fromkeys(_NAME.findall(bare(sql))))


@dataclass(frozen=True, slots=True)
class Spelled:
    """A statement as one driver takes it."""

    sql: str
    names: tuple[str, ...]
    is_positional: bool

    def values(self, given: Mapping[str, Any]) -> Any:
        """Return the parameters for one execution; those that the statement does not name are left out."""
        if self.is_positional:
            return tuple(given[name] for name in self.names)
        return {name: given[name] for name in self.names}


@lru_cache(maxsize=512)
def spelled(sql: str, kind: str) -> Spelled:
    """Return a statement for the driver of a kind of database: postgresql, mysql or sqlite."""
    if kind == "sqlite":
        return Spelled(sql, names_in(sql), is_positional=False)
    doubled = [(text.replace("%", "%%"), is_sql) for text, is_sql in _pieces(sql)]
    parts = [_NAME.sub(r"%(\1)s", text) if is_sql else text for text, is_sql in doubled]
    return Spelled("".join(parts), names_in(sql), is_positional=False)
