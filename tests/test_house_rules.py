"""House rules as tests, so that breaking one is noticed by whoever does it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost
from fencepost import bulk, errors, fences, locks
from fencepost.core.states import diagram
from fencepost.leases.schemes import SCHEMES
from tests import repetition

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
# Some 30 of them are lists of parameters: each operation has them in Operations, Authorized and the client of a server.
MOST_REPETITIONS = 90  # most are parameters of operations, which four layers name: rights, REST and its client


IMPURE = ("time", "threading", "random", "subprocess", "secrets", "queue", "uuid", "signal")


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("src/fencepost/leases/keeper.py", IMPURE),
        ("src/fencepost/core/lease.py", IMPURE),
        ("src/fencepost/cli/main.py", IMPURE),
        ("src/fencepost/threaded/runtime.py", ()),
    ],
)
def test_lint_refuses_impure_modules_outside_the_threaded_runtime(path: str, refused: tuple[str, ...]) -> None:
    source = "".join(f"import {name}; {name}.x()\n" for name in IMPURE)
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise"]
    said = subprocess.run(
        [*command, "--stdin-filename", path, "-"], input=source, capture_output=True, text=True, cwd=ROOT, check=False
    ).stdout
    assert {IMPURE[int(line.split(":")[1]) - 1] for line in said.splitlines() if "TID251" in line} == set(refused)


@pytest.mark.parametrize("module", [fencepost, locks, fences, bulk], ids=lambda module: module.__name__)
def test_all_is_exact(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert sorted(names) == sorted(set(names))
    assert all(hasattr(module, name) for name in names)


def test_modules_for_users_are_there_without_an_import_of_their_own_and_cost_nobody_else() -> None:
    program = """
import sys, fencepost
assert not {"fencepost.bulk", "fencepost.fences"} & set(sys.modules), "loaded though nobody asked"
assert {"bulk", "fences", "locks"} <= set(dir(fencepost)) & set(fencepost.__all__)
fencepost.bulk.keyset, fencepost.fences.write_fenced, fencepost.locks.connect
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_error_is_in_the_tree_of_the_docstring() -> None:
    classes = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert [name for name in classes if name not in (errors.__doc__ or "")] == []


def test_every_store_has_its_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "stores").glob("*.md")}
    named = {"postgres": "postgresql", "postgres_advisory": "postgresql-advisory"}
    wanted = {named.get(scheme.module, scheme.module) for scheme in SCHEMES.values()}
    assert wanted <= pages


def test_nothing_is_unpickled_or_evaluated() -> None:
    named = re.compile(r"\b(eval|exec|pickle|marshal|shelve)\b")
    for path, tree in ((path, ast.parse(text)) for path in SOURCES if named.search(text := path.read_text())):
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not names & {"eval", "exec"}, path
        assert not imported & {"pickle", "marshal", "shelve"}, path


def test_the_version_is_stated_once() -> None:
    assert fencepost.__version__
    assert "version" not in (ROOT / "pyproject.toml").read_text().split("[project]")[1].split("dynamic")[0]


def test_the_picture_of_the_states_is_drawn_from_their_table() -> None:
    assert diagram() in (ROOT / "docs" / "states.md").read_text()


def test_a_class_name_stands_for_one_idea() -> None:
    """Public classes of modules; a name that two files define makes a reader guess which one is meant."""
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_file_holds_more_than_a_reader_takes_in() -> None:
    """Past 450 lines, a file holds two subjects."""
    assert [str(path.relative_to(ROOT)) for path in SOURCES if len(path.read_text().splitlines()) > 450] == []


def test_little_is_written_twice() -> None:
    """`python -m tests.repetition` lists the pairs. The number may fall and not rise: write what is shared once."""
    found = repetition.pairs(repetition.read(repetition.SRC))
    assert len(found) <= MOST_REPETITIONS
