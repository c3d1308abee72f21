r"""The SQL that users write for readers and writers: its keywords, its ``:names``, and each driver's placeholders.

Nothing here parses SQL. It is split into quoted text, comments and the rest, so that a colon within quotes is left
alone, and the few keywords that matter (ORDER BY, LIMIT, OFFSET) are found only where they apply. Functions that blank
something out keep all offsets: a match in the blanked text is at the same place in the statement.

Write a colon that does not begin a name as ``\:``, as in ``numbers[2\:last]``. A cast (``::int``) needs no escape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fencepost.errors import InvalidBulk

_PIECES = re.compile(
    r"""(?P<quoted>\b[eE]'(?:[^'\\]|\\.|'')*'"""
    r"""|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<comment>--[^\n]*|/\*.*?\*/)""",
    re.DOTALL,
)
_NAME = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)")
_QUOTED_NAME = re.compile(r'"[\w$]+"|`[\w$]+`')
_BEGINS = re.compile(r"[\s(]*(?:select|with)\b", re.IGNORECASE)


def _pieces(sql: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a statement, and whether each is SQL, as opposed to quoted or a comment."""
    end = 0
    for found in _PIECES.finditer(sql):
        yield sql[end : found.start()], True
        yield found.group(), False
        end = found.end()
    yield sql[end:], True


def changed(sql: str, change: Callable[[str], str]) -> str:
    """Return a statement with `change` applied to everything that is neither quoted nor a comment."""
    return "".join(change(text) if is_sql else text for text, is_sql in _pieces(sql))


def bare(sql: str) -> str:
    """Return a statement with quoted text and comments replaced by spaces; quoted names of one word stay."""
    return "".join(text if is_sql or _QUOTED_NAME.fullmatch(text) else " " * len(text) for text, is_sql in _pieces(sql))


def outermost(sql: str) -> str:
    """Return a statement with quoted text, comments and everything in parentheses replaced by spaces."""
    depth, kept = 0, []
    for letter in bare(sql):
        depth -= letter == ")"
        kept.append(letter if depth <= 0 else " ")
        depth += letter == "("
    return "".join(kept)


def single_select(sql: Any, *, what: str = "the query") -> str:
    """Return a SELECT without a semicolon or a comment at its end. Refuse any other statement."""
    if not isinstance(sql, str) or not _BEGINS.match(bare(sql)):
        raise InvalidBulk(f"{what} must be a SELECT statement as a string, not {str(sql)[:100]!r}")
    _refuse_escaped_quotes(sql, what)
    plain = bare(sql).rstrip()
    end = len(plain.rstrip("; \t\r\n"))
    if ";" in plain[:end]:
        raise InvalidBulk(f"{what} must be a single statement; put statements that come before it into before()")
    # Quoted text or a comment at the very end is blanked in `plain`. Only the comment may be removed.
    tail = _PIECES.sub(lambda found: found.group() if found["quoted"] else "", sql[end:]).strip("; \t\r\n")
    return f"{sql[:end]} {tail}".strip()


def _refuse_escaped_quotes(sql: str, what: str) -> None:
    for text, is_sql in _pieces(sql):
        if not is_sql and text.startswith("'") and "\\'" in text:
            raise InvalidBulk(
                f"{what} has a string with \\' in it, which ends the string on some databases but not on others; write "
                f"'' for a quote within a string, or use a parameter instead of {text[:40]}"
            )


def names_in(sql: str) -> tuple[str, ...]:
    """Return the ``:names`` of a statement in their order, without duplicates."""
    return tuple(dict.fromkeys(_NAME.findall(bare(sql))))


@dataclass(frozen=True, slots=True)
class DriverStatement:
    """A statement with the placeholders of one driver."""

    sql: str
    names: tuple[str, ...]

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters for one execution, without those that the statement does not use."""
        return {name: given[name] for name in self.names}


@lru_cache(maxsize=512)
def spelled(sql: str, kind: str) -> DriverStatement:
    """Return a statement for the driver of a kind of database: postgresql, mysql or sqlite."""
    if kind == "sqlite":
        return DriverStatement(changed(sql, _unescaped), names_in(sql))
    doubled = [(text.replace("%", "%%"), is_sql) for text, is_sql in _pieces(sql)]
    parts = [_unescaped(_NAME.sub(r"%(\1)s", text)) if is_sql else text for text, is_sql in doubled]
    return DriverStatement("".join(parts), names_in(sql))


def _unescaped(text: str) -> str:
    return text.replace("\\:", ":")
