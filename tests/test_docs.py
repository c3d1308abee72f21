"""What the documents say can be typed, opened and run: commands, links, and the tests that they name."""

import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fencepost.cli.app import app
from fencepost.cli.exec_options import parse

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
# Words that stand for what a reader puts there.
STANDING_FOR = {"RUN": "12", "ID": "12", "JOB": "settle", "TIME": "2026-01-01", "REASON": "why", "TEXT": "why"}
_COMMAND = re.compile(r"(^\$ |`)(fencepost [^`\n]+)(?:`|$)", re.MULTILINE)
_NOT_ALL_OF_IT = re.compile(r"Missing parameter|exec needs the name|expected one argument|needs a program")


def commands(text: str) -> Iterator[tuple[bool, str]]:
    """Every command of ours in a page, and whether it follows a prompt: what stands between backquotes is a mention."""
    for match in _COMMAND.finditer(re.sub(r"\\\n\s*", " ", text)):
        if not re.search(r"…|\.\.\.", match[2]):
            yield match[1] != "`", match[2].strip()


def words_of(command: str) -> list[str]:
    """The words that the shell would pass, up to a pipe or an ampersand; what may be left out is left out."""
    words = shlex.split(re.sub(r"\[[^\]]*\]", "", command), comments=True)[1:]
    for at, word in enumerate(words):
        if word in ("|", "&", "&&", ";", ">", "2>", "<") or word.endswith(";"):
            return words[:at] + ([word[:-1]] if word.endswith(";") and word != ";" else [])
    return words


@functools.cache
def _made() -> Any:
    """The commands, put together once: that takes longer than to read all pages."""
    return typer.main.get_command(app)


def read(words: list[str]) -> None:
    """Read the words as the program does, and stop before anything is done."""
    words = [STANDING_FOR.get(word, word) for word in words]
    if words[:1] == ["exec"]:
        if len(words) > 1:
            parse(words[1:], {"FENCEPOST_STORE": "memory://"})
        return
    command: Any = _made()
    context: Any = None
    name = "fencepost"
    while True:
        context = command.make_context(name, words, parent=context, resilient_parsing=False)
        if not hasattr(command, "resolve_command"):
            return
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, words = command.resolve_command(context, rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_one(page: Path) -> None:
    wrong: list[str] = []
    for is_typed, command in commands(page.read_text()):
        for each in alternatives(command):
            try:
                read(words_of(each))
            except BaseException as error:  # noqa: BLE001 - also SystemExit, with which a parser of options ends
                is_mention = not is_typed and (
                    type(error).__name__ == "NoArgsIsHelpError" or _NOT_ALL_OF_IT.search(str(error))
                )
                if not is_mention:
                    wrong.append(f"{each}: {type(error).__name__} {error}")
    assert not wrong, "\n".join(wrong)


def test_a_command_that_is_none_is_seen() -> None:
    page = "`fencepost runs --no-such-option` and\n$ fencepost show\n$ fencepost exec --lock a --at 3s -- true\n"
    found = list(commands(page))
    assert [is_typed for is_typed, _ in found] == [False, True, True]
    for _, command in found:
        with pytest.raises(Exception, match=r"No such option|Missing parameter|--at"):
            read(words_of(command))


def alternatives(command: str) -> list[str]:
    """``effects install|verify URL`` is two commands."""
    if (choice := re.search(r"(?<= )(\w+(?:\|\w+)+)", command)) is None:
        return [command]
    return [command[: choice.start()] + each + command[choice.end() :] for each in choice[1].split("|")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    lost = [
        each
        for each in targets
        if not re.match(r"\w+:", each) and not (page.parent / (each.split("#")[0] or ".")).exists()
    ]
    assert not lost


_NAMED_FILE = re.compile(r"\b((?:tests|bench|examples|testbed)/[\w/]+\.py)((?:::\w+)*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_test_that_a_page_names_is_there(page: Path) -> None:
    """What shows a promise is found under the name that a page gives it, also after a move or a new name."""
    gone = []
    for name, within in _NAMED_FILE.findall(page.read_text()):
        text = (ROOT / name).read_text() if (ROOT / name).is_file() else None
        if text is None or any(not re.search(rf"(?:def|class) {each}\b", text) for each in within.split("::")[1:]):
            gone.append(f"{name}{within}")
    assert gone == []


def test_every_test_that_a_page_of_a_store_names_is_there() -> None:
    pages = {page.name: page.read_text() for page in (ROOT / "docs" / "stores").glob("*.md")}
    asked = {name: list(_asked(text)) for name, text in pages.items()}
    files = sorted({file for each in asked.values() for file, _ in each})
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.splitlines()  # fmt: skip
    names = [line for line in listed if "::" in line]
    missing = [
        (page, file, words) for page, each in asked.items() for file, words in each if not _any(names, file, words)
    ]
    assert asked["redis.md"]
    assert not missing


def _asked(text: str) -> Iterator[tuple[str, str]]:
    """The file and the words of every ``-k`` of a page; of several files, the one named last before it."""
    file = "".join(re.findall(r"pytest (tests/\S+\.py)", text)[:1])
    for found in re.finditer(r"""`[^`]*?-k (?:"([^"]+)"|([\w]+))[^`]*`(?:, \*(startup)\*)?""", text):
        startup = file.replace("_store", "_startup") if found[3] else file
        yield startup, found[1] or found[2]


def _any(names: list[str], file: str, words: str) -> bool:
    return any(
        name.startswith(file) and word.lower() in name.removeprefix(file).lower()
        for name in names
        for word in words.split(" or ")
    )


def test_the_path_of_a_tick_can_be_read_at_one_sitting() -> None:
    """The table in docs/engine.md names files that are there, with their lengths, and not too many of either."""
    rows = re.findall(r"^\| \[[\w/.]+\]\(\.\./(src/[\w/.]+)\) \| (\d+) \|", (ROOT / "docs/engine.md").read_text(), re.M)
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path, _ in rows}
    assert 15 <= len(rows) <= 20
    assert sum(lengths.values()) <= 3500
    off = {path: (said, lengths[path]) for path, said in rows if abs(int(said) - lengths[path]) > 30}
    assert off == {}, "the lengths have changed: write down the new ones"
