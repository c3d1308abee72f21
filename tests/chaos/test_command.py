"""What cannot work is refused in one sentence, before anything is made, and without a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import call

SECRET = "hunter2"
HERE = "sqlite:///{folder}/app.db"
REFUSED = {
    "a store without prefixes": (["--store", f"etcd://me:{SECRET}@host:2379"], "cannot be kept apart"),
    "no store at all": (["--store", f"carrier-pigeon://me:{SECRET}@loft"], "carrier-pigeon"),
    "no time": (["--minutes", "0"], "--minutes 0"),
    "for ever": (["--minutes", "1e9"], "at most 1440"),
    "one node": (["--nodes", "1"], "--nodes"),
    "a ttl that no process can keep": (["--ttl", "200ms"], "at least 1 s"),
    "a ttl that is none": (["--ttl", "soon"], "soon"),
    "to remove what is not of chaos": (["--remove", "fencepost_"], "no prefix of chaos"),
    "a ledger that is not there": (["--ledger", f"postgresql://me:{SECRET}@127.0.0.1:1/shop"], "127.0.0.1"),
    "a store that is not there": (["--store", f"redis://:{SECRET}@127.0.0.1:1/0"], "127.0.0.1:1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str, tmp_path: Path) -> None:
    words, expected = REFUSED[case]
    done = call("chaos", "--ledger", HERE.format(folder=tmp_path), *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert SECRET not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_first_line_says_where_for_how_long_and_how_to_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fencepost.proof.chaos.course.Course.run", ended)
    ledger, store = f"postgresql://me:{SECRET}@db/shop", f"redis://:{SECRET}@cache/0"
    done = call("chaos", "--ledger", ledger, "--store", store, "--minutes", "1.5")
    assert done.stdout.startswith("chaos on the ledger postgresql://me:***@db/shop, locks in redis://:***@cache/0: ")
    assert "for 1m30s" in done.stdout
    assert "Ctrl-C ends it" in done.stdout
    monkeypatch.chdir(tmp_path)
    default = call("chaos", "--json")
    assert (
        default.stdout,
        default.stderr.startswith("chaos on the ledger sqlite:///fencepost.db, locks beside it"),
    ) == ("", True)
    assert "for 5m" in default.stderr


def test_what_a_killed_run_left_is_removed_by_its_prefix(tmp_path: Path) -> None:
    done = call("chaos", "--ledger", HERE.format(folder=tmp_path), "--remove", "fencepost_chaos_0f1e2d3c_")
    assert done.returncode == 0
    assert done.stdout == ""
