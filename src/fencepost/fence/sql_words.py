"""The words of a SQL statement's outermost level: what it orders by, limits and locks, without parsing the rest.

Texts, quoted names, comments and all that is in parentheses are passed over. That is enough to tell what may follow a
SELECT; it is no check that the statement is right, which is for the database.
"""

from __future__ import annotations

import re

_PASSED_OVER = re.compile(
    r"""
      '(?:[^'\\]|''|\\.)*'            # a text; a backslash may hide its quote (MySQL)
    | "(?:[^"]|"")*"                  # a quoted name, or a text of MySQL
    | `(?:[^`]|``)*`
    | \[[^\]]*\]                      # a quoted name of SQLite, or the index of an array
    | \$(\w*)\$.*?\$\1\$              # a text between dollars (PostgreSQL)
    | --[^\n]*
    | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_][\w$]*|[();]")


def outer_words(sql: str) -> list[str]:
    """Return the words outside of parentheses, in capitals, and each semicolon.

    >>> outer_words("SELECT a FROM b WHERE c IN (SELECT d FROM e LIMIT 1) ORDER BY 'LIMIT'")
    ['SELECT', 'A', 'FROM', 'B', 'WHERE', 'C', 'IN', 'ORDER', 'BY']
    """
    depth, words = 0, []
    for word in _WORD.findall(_PASSED_OVER.sub(" ", sql)):
        if word in "()":
            depth = max(depth + (1 if word == "(" else -1), 0)
        elif depth == 0:
            words.append(word.upper())
    return words


def ends_in_comment(sql: str) -> bool:
    """Whether what is written behind `sql` on the same line would be part of a comment."""
    return "--" in _PASSED_OVER.sub(lambda found: "--" if found[0].startswith("--") else " ", sql).rpartition("\n")[2]
