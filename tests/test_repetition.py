"""The program that counts repetition finds copies, and takes no declaration for one."""

from pathlib import Path

import pytest

from tests import repetition

STATEMENTS = """
def {name}({given}):
    total = 0
    for {each} in {given}:
        if {each} > {least}:
            total += {each}
    return total
"""
FIELDS = """
@dataclass
class {name}:
    {a}: int
    {b}: str = "x"
    {c}: float
    {d}: bool = False
    {e}: int = 7
    {f}: bytes
"""
SIGNATURE = """
def {name}(
    {a}: int,
    {b}: str = "x",
    {c}: float = 1.0,
    {d}: bool = False,
    {e}: int = 7,
    {f}: bytes = b"",
) -> None:
    print({a})
"""
CONSTRUCTOR = """
class {name}:
    def __init__(self, a, b, c, d, e, f):
        self.{a} = a
        self.{b} = b
        self.{c} = c
        self.{d} = d
        self.{e} = e
        self.{f} = f
"""
CALL = """
{name}(
    {a}=one.a,
    {b}=one.b,
    {c}=one.c,
    {d}=one.d,
    {e}=one.e,
    {f}=7,
)
"""
LIST = """
{name} = [
    "{a}",
    "{b}",
    "{c}",
    "{d}",
    "{e}",
    "{f}",
]
"""
CONSTANTS = """
{a} = 1
{b} = "x"
{c} = 2
{d} = True
{e} = 3.0
{f} = None
{name}()
"""
PROTOCOL = """
class {name}(Protocol):
    def {a}(self) -> int: ...
    def {b}(self, x: int) -> str: ...
    def {c}(self) -> None:
        ...
    def {d}(self) -> int: ...
    def {e}(self) -> int: ...
    def {f}(self) -> int: ...
"""
PROPERTIES = """
class {name}:
    @property
    def {a}(self) -> int:
        return self._of.{a}

    @property
    def {b}(self) -> str:
        return self._of.{b}
"""
COLUMNS = """
{name} = table(
    Column("{a}", Number(), nullable=False),
    Column("{b}", Number()),
    Column("{c}", Text(60), nullable=False),
    Column("{d}", Text(60)),
    Column("{e}", Number()),
    Column("{f}", Number()),
)
"""
SOME, OTHERS = dict(zip("abcdef", "abcdef", strict=True)), dict(zip("abcdef", "uvwxyz", strict=True))


def count(folder: Path, **texts: str) -> int:
    for name, text in texts.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return len(repetition.pairs(repetition.read(folder)))


def test_a_copy_with_other_names_is_a_pair_in_another_file_and_in_the_same_one(tmp_path: Path) -> None:
    one = STATEMENTS.format(name="over", given="sums", each="one", least=3)
    other = STATEMENTS.format(name="above", given="weights", each="weight", least=1.5)
    assert count(tmp_path, here=one) == 0
    assert count(tmp_path, there=other) == 1
    assert count(tmp_path, there=f"x(1)\n{other}\ny(lambda: 2)\n{one}") == 3


def test_a_statement_more_or_another_keyword_ends_what_is_shared(tmp_path: Path) -> None:
    one = STATEMENTS.format(name="over", given="sums", each="one", least=3)
    assert count(tmp_path, here=one, there=one.replace("if ", "while ")) == 0
    assert count(tmp_path, there=one.replace("    for", "    print()\n    for")) == 0
    assert count(tmp_path, there=one.replace("    for", "    # why\n\n    for")) == 1


@pytest.mark.parametrize(
    "text",
    [FIELDS, SIGNATURE, CONSTRUCTOR, CALL, LIST, CONSTANTS, PROTOCOL, PROPERTIES, COLUMNS],
    ids=["fields", "signature", "constructor", "call", "list", "constants", "protocol", "properties", "columns"],
)
def test_declarations_are_a_pair_only_if_they_are_equal(tmp_path: Path, text: str) -> None:
    assert count(tmp_path, here=text.format(name="one", **SOME), there=text.format(name="two", **OTHERS)) == 0
    assert count(tmp_path, there=text.format(name="two", **SOME)) == 1


def test_a_property_that_computes_is_no_declaration(tmp_path: Path) -> None:
    text = PROPERTIES.replace("self._of", "self._of()")
    assert count(tmp_path, here=text.format(name="one", **SOME), there=text.format(name="two", **OTHERS)) == 1


def test_an_argument_that_is_computed_is_no_declaration(tmp_path: Path) -> None:
    text = CALL.replace("one.", "of(one).")
    assert count(tmp_path, here=text.format(name="one", **SOME), there=text.format(name="two", **OTHERS)) == 1


def test_lines_of_a_longer_string_are_shared_if_they_are_equal(tmp_path: Path) -> None:
    query = 'x = f("""\nSELECT a\nFROM b\nJOIN c\nWHERE d\nGROUP BY e\nORDER BY f\n""")\n'
    assert count(tmp_path, here=query, there=query.replace("JOIN c", "JOIN d")) == 0
    assert count(tmp_path, there=query) == 1


def test_docstrings_imports_and_steps_of_migrations_do_not_count(tmp_path: Path) -> None:
    text = '"""a\nb\nc\nd\ne\nf\ng"""\n' + "".join(f"from {name} import {name}\n" for name in "abcdefg")
    assert count(tmp_path, here=text, there=text) == 0
    one = STATEMENTS.format(name="over", given="sums", each="one", least=3)
    assert count(tmp_path, **{"versions/r1": one, "versions/r2": one}) == 0


def test_of_overlapping_runs_the_longest_counts(tmp_path: Path) -> None:
    step = "if n():\n    m(n)\n"
    assert (
        count(tmp_path, here=step * 6, there=f"x = y + 1\n{step * 5}") == 2
    )  # between the files, and within the first
