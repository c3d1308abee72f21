"""Recognizes temporary errors by their messages: a server without free connections, and a busy file."""

import re

_WORDS = (
    "too many clients",  # PostgreSQL
    "connection slots are reserved",  # PostgreSQL, which reserves the last ones for administrators
    "too many connections",  # PostgreSQL, for a role or a database; MySQL and MariaDB
    "max_user_connections",  # MySQL and MariaDB
    "no more connections allowed",  # PgBouncer
)


_BUSY = re.compile(r"SQLite file .* (did not answer within|was busy for) ", re.DOTALL)  # our own messages


def is_busy_file(error: BaseException | None) -> bool:
    """Whether an error means that a SQLite file was busy with other writers, or that its disk was slow."""
    return error is not None and _BUSY.match(str(error)) is not None


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, means that the server has no free connection."""
    while error is not None:
        text = str(error).lower()
        if any(words in text for words in _WORDS):
            return True
        error = error.__cause__
    return False
