"""Counts what `src` says twice: `python -m tests.repetition` lists the pairs of places, longest first.

A pair is two places that share a run of six or more lines. Statements are shared if they have the same shape: the same
keywords and punctuation, whatever the names, strings and numbers. Declarations (`declared`) are shared only if they are
equal to the letter, because six fields, parameters or constants in a row have the same shape in every file. A pair is
counted once, at its full length. Where several runs of the same two places overlap, the longest counts. A run in three
places makes three pairs.

Blank lines, comments, docstrings, imports, `__all__` and lines of punctuation are passed over, as if they were not
there. So are the steps of migrations: they are never edited again, so what they repeat stays.

A detector that compares text without knowing the language lists more pairs: records, signatures and constructors whose
lines agree in shape alone, and docstrings. It lists fewer where two files share several runs, which it lists once, and
where a shape stands in many places, which it leaves out. This program counts each of these, so that one more copy never
lowers the count.
"""

from __future__ import annotations

import ast
import io
import keyword
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
LEAST = 6  # shorter runs are common in any code
FROZEN = "versions"  # the folders with steps of migrations

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LISTED = set("ns0,.:|[]{}-*")  # what a line of values consists of, in its shape: no call, no assignment, no keyword


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    shape: str


@dataclass(frozen=True)
class Run:
    """So many lines, from line `at` of one file and line `other_at` of the other on. Both count from 0, as read."""

    path: Path
    at: int
    other: Path
    other_at: int
    length: int

    def overlaps(self, run: Run) -> bool:
        """Say whether two runs of the same files have lines in common on both sides."""
        return (
            self.at < run.at + run.length
            and run.at < self.at + self.length
            and self.other_at < run.other_at + run.length
            and run.other_at < self.other_at + self.length
        )


def main() -> None:
    files = read(SRC)
    found = pairs(files)
    for run in found:
        here, there = (_place(files, *side, run.length) for side in ((run.path, run.at), (run.other, run.other_at)))
        print(f"{run.length:3} lines, {_equal(files, run):3} of them equal: {here} ~ {there}")
    print(f"{len(found)} pairs of places share {LEAST} or more lines")


def read(folder: Path) -> dict[Path, list[Line]]:
    paths = sorted(path for path in folder.rglob("*.py") if FROZEN not in path.parts)
    return {path.relative_to(folder): lines(path.read_text()) for path in paths}


def pairs(files: dict[Path, list[Line]]) -> list[Run]:
    """Return what is shared, longest first."""
    kept: dict[tuple[Path, Path], list[Run]] = defaultdict(list)
    for run in sorted(_runs(files), key=lambda run: -run.length):
        others = kept[run.path, run.other]
        if not any(run.overlaps(other) for other in others):
            others.append(run)
    return sorted((run for runs in kept.values() for run in runs), key=lambda run: -run.length)


def lines(source: str) -> list[Line]:
    """Return the lines that count."""
    nodes = list(ast.walk(ast.parse(source)))
    passed, declarations = set(passed_over(nodes)), set(declared(nodes))
    found = []
    for number, tokens in sorted(_tokens_by_line(source).items()):
        if number in passed or all(kind == tokenize.OP for kind, _ in tokens):
            continue
        text = " ".join(string for _, string in tokens)
        shape = " ".join(_shape(kind, string) for kind, string in tokens)
        is_declared = number in declarations or set(shape.replace(" ", "")) <= LISTED
        found.append(Line(number, text, text if is_declared else shape))
    return found


def passed_over(nodes: list[ast.AST]) -> Iterator[int]:
    """Name the lines that do not count at all."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _lines_of(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _lines_of(node)  # docstrings, also those of constants
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from _lines_of(node)


def declared(nodes: list[ast.AST]) -> Iterator[int]:
    """Name the lines that declare something, and can hardly be written in another way."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef):
            yield from _lines_of(*(each for each in node.body if _is_field(each)))  # constants, and fields of records
        if isinstance(node, ast.ClassDef) and all(_is_field(each) for each in node.body):  # the head of a record
            yield from range(_first_line(node), node.body[0].lineno)
        if isinstance(node, FUNCTIONS):
            yield from _parameters(node)
        if isinstance(node, FUNCTIONS) and _is_declaration(node):  # methods of protocols, and attributes for reading
            yield from range(_first_line(node), (node.end_lineno or node.lineno) + 1)
        if isinstance(node, FUNCTIONS) and node.name == "__init__":  # what stores the parameters
            yield from _lines_of(*(each for each in node.body if _is_field(each)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Column":  # the fields of tables
            yield from _lines_of(node)
        if isinstance(node, ast.Call):  # what hands names and values through to parameters
            yield from _handed_through(node)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Name the lines of a signature between its first and its last."""
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    values = [*given.defaults, *given.kw_defaults]
    return (line for line in _lines_of(*(each for each in [*named, *values] if each)) if line > node.lineno)


def _handed_through(node: ast.Call) -> set[int]:
    """Name the lines of a call that only say which name or value is which parameter."""
    plain = [each for each in node.keywords if _is_plain(each.value)]
    others = [each for each in node.keywords if not _is_plain(each.value)]
    return set(_lines_of(*plain)) - set(_lines_of(*others, *node.args, node.func))


def _is_declaration(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a function has no body, or is a property that returns an attribute as it is."""
    body = [each for each in node.body if not _is_field(each)]
    is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
    match body:
        case []:
            return True
        case [ast.Return(value=ast.Attribute() as value)]:
            return is_property and _is_plain(value)
    return False


def _is_field(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.AnnAssign | ast.Pass) or (isinstance(node, ast.Assign) and _is_plain(node.value))


def _is_plain(value: ast.expr) -> bool:
    """Say whether this is a name, an attribute of one, a constant, a text, or an empty display."""
    match value:
        case ast.Name() | ast.Constant() | ast.JoinedStr() | ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Attribute(value=inner) | ast.UnaryOp(operand=inner):
            return _is_plain(inner)
    return False


def _tokens_by_line(source: str) -> dict[int, list[tuple[int, str]]]:
    """Return kinds and texts of tokens. Each line of a longer string is one of its own, with its words as they are."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first = token.start[0]
        if token.type not in LAYOUT and token.end[0] == first:
            found[first].append((token.type, token.string))
        elif token.type not in LAYOUT:
            for offset, text in enumerate(token.string.splitlines()):
                if text.strip():
                    found[first + offset].append((tokenize.ERRORTOKEN, " ".join(text.split())))
    return found


def _shape(kind: int, string: str) -> str:
    if kind == tokenize.NAME and not keyword.iskeyword(string):
        return "n"
    return {"STRING": "s", "FSTRING_MIDDLE": "s", "NUMBER": "0"}.get(tokenize.tok_name[kind], string)


def _runs(files: dict[Path, list[Line]]) -> Iterator[Run]:
    """Return every run, at its full length."""
    for (path, other, ahead), starts in _windows(files).items():
        begin = previous = starts[0]
        for start in [*starts[1:], sys.maxsize]:
            if start != previous + 1:
                yield Run(path, begin, other, begin + ahead, previous + LEAST - begin)
                begin = start
            previous = start


def _windows(files: dict[Path, list[Line]]) -> dict[tuple[Path, Path, int], list[int]]:
    """Return where six lines begin that stand again so many lines ahead, in the same or in another file."""
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, read_lines in files.items():
        shapes = [line.shape for line in read_lines]
        for at in range(len(shapes) - LEAST + 1):
            places[tuple(shapes[at : at + LEAST])].append((path, at))
    found: dict[tuple[Path, Path, int], list[int]] = defaultdict(list)
    for each in places.values():
        for (path, at), (other, other_at) in combinations(each, 2):
            if path != other or other_at - at >= LEAST:
                found[path, other, other_at - at].append(at)
    return {key: sorted(starts) for key, starts in found.items()}


def _lines_of(*nodes: ast.stmt | ast.expr | ast.arg | ast.keyword) -> Iterator[int]:
    for node in nodes:
        yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _first_line(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min(each.lineno for each in [node, *node.decorator_list])


def _place(files: dict[Path, list[Line]], path: Path, at: int, length: int) -> str:
    return f"{path}:{files[path][at].number}-{files[path][at + length - 1].number}"


def _equal(files: dict[Path, list[Line]], run: Run) -> int:
    here = files[run.path][run.at : run.at + run.length]
    there = files[run.other][run.other_at : run.other_at + run.length]
    return sum(one.text == other.text for one, other in zip(here, there, strict=True))


if __name__ == "__main__":
    main()
