"""Troubles that time mends, by the words they are told in: a server without a connection free, and a busy file."""

import re

_WORDS = (
    "too many clients",  # PostgreSQL
    "connection slots are reserved",  # PostgreSQL, where the last ones are kept for administrators
    "too many connections",  # PostgreSQL of a role or a database; MySQL and MariaDB
    "max_user_connections",  # MySQL and MariaDB
    "no more connections allowed",  # PgBouncer
)


_BUSY = re.compile(r"SQLite file .* (did not answer within|was busy for) ", re.DOTALL)  # our own words


def is_busy_file(error: BaseException | None) -> bool:
    """Whether an error means that others wrote to a SQLite file all the while, or that its disk was slow."""
    return error is not None and _BUSY.match(str(error)) is not None


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what it came of, means that the server has no connection free."""
    while error is not None:
        text = str(error).lower()
        if any(words in text for words in _WORDS):
            return True
        error = error.__cause__
    return False
