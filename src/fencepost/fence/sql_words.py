"""The words on the outermost level of a SQL statement, to find ORDER BY, LIMIT and locks without parsing the rest.

String literals, quoted names, comments and everything in parentheses are skipped. This is enough to know what may
follow a SELECT. It does not check that the statement is valid, which the database does.
"""

from __future__ import annotations

import re

_PASSED_OVER = re.compile(
    r"""
      '(?:[^'\\]|''|\\.)*'            # a string; a backslash may escape its quote (MySQL)
    | "(?:[^"]|"")*"                  # a quoted name, or a string in MySQL
    | `(?:[^`]|``)*`
    | \[[^\]]*\]                      # a quoted name in SQLite, or an array index
    | \$(\w*)\$.*?\$\1\$              # a dollar-quoted string (PostgreSQL)
    | --[^\n]*
    | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_][\w$]*|[();]")


def outer_words(sql: str) -> list[str]:
    """Return the words outside parentheses, in capitals, and each semicolon.

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
    """Whether text appended to `sql` on the same line would be part of a comment."""
    return "--" in _PASSED_OVER.sub(lambda found: "--" if found[0].startswith("--") else " ", sql).rpartition("\n")[2]
