"""The first thing in the README, typed as it stands in an empty folder, visibly works."""

import os
import pty
import re
import shlex
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path

import fencepost
from testbed.wait import until
from tests.cli.command import FENCEPOST, LONG_S

README_FILE = Path(__file__).parent.parent / "README.md"
README = README_FILE.read_text()


def block(language: str, number: int = 1) -> str:
    """The first block of this language below the heading of jobs, or a later one."""
    text = README[README.index("## Jobs in ten lines") :]
    return text.split(f"```{language}\n", number)[number].split("```", 1)[0]


def test_the_first_snippet_runs_where_it_is_typed_and_the_terminal_shows_its_runs(tmp_path: Path) -> None:
    code, console = block("python"), block("console")
    name = code.splitlines()[0].removeprefix("# ")
    (tmp_path / name).write_text(code)
    command, *shown = console.splitlines()
    words = command.removeprefix("$ ").split("#")[0].split()
    assert words[0] == "fencepost"
    terminal, end = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    environment["FENCEPOST_SLOTS"] = "2"  # fewer processes than it would start, on a machine that others use
    process = subprocess.Popen(
        [FENCEPOST, *words[1:]], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=end, stderr=end
    )
    os.close(end)
    written = b""

    def has_shown_all() -> bool:
        nonlocal written
        with suppress(OSError):  # it has ended
            written += os.read(terminal, 65536)
        return is_shown() or process.poll() is not None

    def is_shown() -> bool:
        seen = [_constant(line) for line in written.decode().splitlines()]
        return all(_constant(line) in seen for line in shown)

    try:
        until(has_shown_all, LONG_S, what="the terminal shows what the README shows")
    finally:
        process.terminate()
        process.wait(LONG_S)
        os.close(terminal)
    assert is_shown(), written.decode()


def test_what_is_added_to_the_first_snippet_runs_too(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(block("python") + block("python", 2))
    commands = [line.removeprefix("$ ").split("  #")[0] for line in block("console", 2).splitlines()]
    [table] = [command for command in commands if command.startswith("python -c ")]
    asked = [command for command in commands if command.startswith("fencepost trigger ")]
    assert len(asked) == 2
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    environment |= {"FENCEPOST_SLOTS": "1", "PATH": f"{Path(FENCEPOST).parent}:{environment['PATH']}"}

    def typed(command: str) -> subprocess.CompletedProcess[str]:
        where = {"cwd": tmp_path, "env": environment, "timeout": LONG_S}
        return subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, **where)

    assert typed(table).returncode == 0
    node = subprocess.Popen([FENCEPOST, "run", "shop:app"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        until(lambda: "notify" in typed("fencepost jobs").stdout, LONG_S, what="the node has brought its jobs")
        for done in map(typed, asked):
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        node.terminate()
        node.wait(LONG_S)


def test_the_package_is_installed_from_where_it_can_be_had() -> None:
    section = README.split("## Install", 1)[1].split("\n## ", 1)[0]
    commands = re.findall(r"^\$ pip install '([^']*)\[(\w+)\]'", section, re.MULTILINE)
    assert [place for place, _ in commands] == ["./fencepost", "dist/fencepost-0.1.0.dev0-py3-none-any.whl"]
    project = tomllib.loads((README_FILE.parent / "pyproject.toml").read_text())["project"]
    version = project.get("version") or fencepost.__version__
    assert f"fencepost-{version}-py3-none-any.whl" in section
    extras = re.findall(r"`(\w+)`", section.split("Extras:")[1].split("Where")[0])
    assert set(extras) <= project["optional-dependencies"].keys()


def _constant(line: str) -> list[str]:
    """The words of a line that are the same for everybody: no times, numbers, names of machines and folders."""
    return [word for word in line.split() if not re.search(r"[\d/]", word)]
