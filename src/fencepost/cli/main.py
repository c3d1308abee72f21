"""The entry point: finds the command, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence

from fencepost.cli.exits import Exit
from fencepost.cli.messages import complain
from fencepost.cli.output import visible
from fencepost.core.secrets import scrub
from fencepost.errors import AlreadyRequested, FencepostError, LedgerUnavailable, StoreUnavailable
from fencepost.threaded.collection import one_command
from fencepost.threaded.guardian import occupy_standard_streams

_NO_DATABASE = re.compile(r"database .* does not exist|Unknown database")  # PostgreSQL, MariaDB and MySQL
_MAKE_IT = "; make it first: createdb NAME, on MariaDB and MySQL CREATE DATABASE NAME; then fencepost migrate"
_CODES = {LookupError: Exit.UNKNOWN, AlreadyRequested: Exit.DUPLICATE}


def main(words: Sequence[str] | None = None) -> int:
    """Run ``fencepost`` with `words`, by default those of the command line, and return the exit code."""
    if words is not None:
        return _executed(list(words))
    with one_command():
        return _executed(sys.argv[1:])


def _executed(words: list[str]) -> int:
    """Run the command, and report an error in one sentence."""
    occupy_standard_streams()  # before a store opens a file, which would otherwise get the descriptor of standard input
    _speak_any_encoding()
    try:
        code = _run(words)
        print(end="", flush=True)  # here, so that an error of the output is reported
    except (StoreUnavailable, LedgerUnavailable) as error:
        complain(f"{_in_one_line(error).rstrip('.')}; {_advice(error)}")
        return Exit.BAD_INPUT
    except FencepostError as error:
        complain(_in_one_line(error) + (_MAKE_IT if _NO_DATABASE.search(str(error)) else ""))
        return next((code for kind, code in _CODES.items() if isinstance(error, kind)), Exit.BAD_INPUT)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _say_no_more()
        return Exit.OK
    except OSError as error:  # errors of servers have been converted to other classes
        _say_no_more()
        where = error.filename or "the output cannot be written"
        complain(visible(f"{where}: {error.strerror or error}"))
        return Exit.BAD_INPUT
    return code


def _run(words: list[str]) -> int:
    if words[:1] == ["exec"]:
        from fencepost.cli import exec as verb  # noqa: PLC0415 - what cron starts every minute must not load the rest

        return verb.main(words[1:])
    from fencepost.cli import app  # noqa: PLC0415

    return app.main(words)


def _speak_any_encoding() -> None:
    """Escape characters that the output's encoding lacks, rather than fail in the middle of a table."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _say_no_more() -> None:
    """Redirect standard output to nowhere, or the interpreter reports the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _advice(error: StoreUnavailable | LedgerUnavailable) -> str:
    """Return advice for a store, ledger or file that does not answer."""
    if "disk is full" in str(error):
        return "nothing was done; make room on that disk"
    if "readonly database" in str(error):
        return "nothing was done; it cannot be written: check the rights on it and on its folder"
    if "SQLite file" in str(error):
        return "does another process keep it locked?"
    return "is it running, and is its URL right?"  # the ledger's, the store's, or that of a database of effects


def _in_one_line(error: BaseException) -> str:
    """Return the message, without passwords: it may repeat a URL from the command line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return visible(scrub(text))
