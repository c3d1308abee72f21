"""Bad input: one sentence that says what is wrong, exit code 2, no traceback, no password.

Most is asked within this process. What a driver, an interpreter or the shell could add to the sentence is asked of a
process: servers that do not answer, a missing package, bytes that are no text.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.postgres import Postgres
from testbed.server import free_port
from testbed.valkey import Valkey
from tests.cli.command import fencepost
from tests.cli.inside import call

LONG_NAME = "x" * 10_240
OK_STORE = "sqlite:///{tmp}/ok.db"


def assert_one_sentence(done, *expected: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert len(done.stderr) < 600
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stderr + done.stdout
    for text in expected:
        assert text in done.stderr


STORES = {
    "unknown scheme": ("ftp://host/x", "ftp://"),
    "no scheme": ("locks.db", "scheme://"),
    "bad port": ("postgresql://user:s3cret@host:port/db", "port"),
    "slash in password": ("postgresql://user:s3cret/x@host/db", "%2F"),
    "hash in password": ("postgresql://user:s3cret#x@host/db", "%23"),
    "question mark in password": ("postgresql://user:x?s3cret@host/db", "URL"),
    "odd character in password": ("postgresql://user:s3cret\u2100@host/db", "URL"),
    "unknown option": ("sqlite:///x.db?colour=red", "colour"),
    "bad call timeout": ("sqlite:///x.db?call_timeout=soon", "soon"),
    "no call timeout at all": ("sqlite:///x.db?call_timeout=0", "more than zero"),
    "unwritable path": ("sqlite:////proc/no/such/folder/x.db", "/proc/no/such"),
    "not a database": ("sqlite:///{tmp}/text.db", ""),
    "nobody listens: postgresql": ("postgresql://user:s3cret@127.0.0.1:{port}/db", "127.0.0.1"),
    "nobody listens: redis": ("redis://:s3cret@127.0.0.1:{port}", "is it running"),
    "nobody listens: etcd": ("etcd://user:s3cret@127.0.0.1:{port}", "is it running"),
    "nobody listens: mysql": ("mysql://user:s3cret@127.0.0.1:{port}/db", "is it running"),
    "nobody listens: zookeeper": ("zookeeper://127.0.0.1:{port}", "is it running"),
    "no such host": ("postgresql://user:s3cret@no-such-host.invalid/db", "no-such-host.invalid"),
    "unreadable kubeconfig": ("kubernetes://default?kubeconfig={tmp}/no-such-file", "no-such-file"),
    "kubeconfig that is none": ("kubernetes://default?kubeconfig={tmp}/text.leases.db", "?kubeconfig=PATH"),
}
OF_DRIVERS = {case for case in STORES if case.startswith(("nobody", "no such", "not a database", "kubeconfig"))}


@pytest.mark.parametrize("command", ["exec", "list"])
@pytest.mark.parametrize("case", STORES)
def test_store(case: str, command: str, tmp_path: Path) -> None:
    url, expected = STORES[case]
    (tmp_path / "text.leases.db").write_text("this is no database, and it is long enough to be looked at" * 100)
    store = ("--store", url.replace("{tmp}", str(tmp_path)).replace("{port}", str(free_port())))
    ran = tmp_path / "ran"
    words = ("exec", *store, "--lock", "x", "--", "touch", str(ran)) if command == "exec" else ("locks", "list", *store)
    ask = fencepost if command == "exec" and case in OF_DRIVERS else call
    assert_one_sentence(ask(*words), expected)
    assert not ran.exists()


EXEC = {
    "ttl too short": (["--ttl", "1ms"], "ttl"),
    "ttl too long": (["--ttl", "30d"], "ttl"),
    "bad ttl": (["--ttl", "5 parsecs"], "5 parsecs"),
    "bad wait": (["--wait", "soon"], "soon"),
    "bad at-least": (["--at-least", "-1s"], "at-least"),
    "bad tick": (["--tick", "yesterday"], "yesterday"),
    "tick without zone": (["--tick", "2026-01-01T00:00"], "time zone"),
    "bad cron": (["--tick", "auto:every day"], "every day"),
    "cron never due": (["--tick", "auto:0 0 31 4 *"], "0 0 31 4 *"),
    "no cron": (["--tick", "auto:"], "cron"),
    "bad zone": (["--tick", "auto:* * * * *", "--tz", "Mars/Base"], "Mars/Base"),
    "zone as a path": (["--tick", "auto:* * * * *", "--tz", "../../etc/passwd"], "time zone"),
    "zone of what": (["--tz", "Europe/Berlin"], "auto:"),
    "zone of a tick that has one": (["--tick", "2026-01-01T00:00Z", "--tz", "Europe/Berlin"], "auto:"),
    "at most once of what": (["--at-most-once"], "--tick"),
    "unknown option": (["--color"], "--color"),
    "misspelt store": (["--stor", "redis://:s3cret@host"], "'--stor'"),
    "misspelt store with =": (["--stor=redis://:s3cret@host"], "'--stor'"),
    "bad log format": (["--log-format", "xml"], "xml"),
    "empty name": (["--lock", ""], "name"),
    "long name": (["--lock", LONG_NAME], "10240"),
    "name with a line break": (["--lock", "a\nb"], "a\\nb"),
    "name with an escape": (["--lock", "a\x1b[31mb"], "a\\x1b"),
    "name with a space at the end": (["--lock", "a "], "white space"),
    "name that is no UTF-8": (["--lock", "a\udcffb"], "name"),
}
OF_THE_SHELL = {"bad ttl", "unknown option", "name with a line break", "name that is no UTF-8"}


@pytest.mark.parametrize("case", EXEC)
def test_exec(case: str, tmp_path: Path) -> None:
    words, expected = EXEC[case]
    store = ("--store", f"sqlite:///{tmp_path}/locks.db", "--lock", "fine")
    ask = fencepost if case in OF_THE_SHELL else call
    assert_one_sentence(ask("exec", *store, *words, "--", "touch", f"{tmp_path}/ran"), expected)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("words", [["--lock", "x", "--"], ["--lock", "x"], ["--", "true"], ["--lock"]])
def test_exec_without_what_it_needs(words: list[str]) -> None:
    assert_one_sentence(call("exec", "--store", "memory://", *words))


def test_program_without_the_dashes_before_it() -> None:
    assert_one_sentence(call("exec", "--store", "memory://", "--lock", "x", "sleep", "1"), "'sleep'", "after --")


def test_empty_program() -> None:
    assert_one_sentence(call("exec", "--store", "memory://", "--lock", "x", "--", ""), "empty", "after --")


def test_misspelt_lock_is_named() -> None:
    assert_one_sentence(call("exec", "--store", "memory://", "--lok", "x", "--", "true"), "'--lok'")


def test_no_store_at_all() -> None:
    for words in (["exec", "--lock", "x", "--", "true"], ["locks", "list"]):
        assert_one_sentence(call(*words, env={"FENCEPOST_STORE": ""}), "FENCEPOST_STORE")


@pytest.mark.parametrize("name", [LONG_NAME, "a\nb", ""])
@pytest.mark.parametrize("verb", ["show", "history", "release"])
def test_name_for_locks(name: str, verb: str, tmp_path: Path) -> None:
    assert_one_sentence(call("locks", verb, name, "--store", f"sqlite:///{tmp_path}/locks.db"), "name")


@pytest.mark.parametrize("words", [["frob"], ["locks", "frob"], ["locks", "list", "--frob"], ["locks", "show"]])
def test_unknown_words(words: list[str]) -> None:
    assert_one_sentence(call(*words), "--help")


@pytest.mark.parametrize(
    "words",
    [
        ["URL"],
        ["locks", "URL"],
        ["locks", "list", "URL"],
        ["exec", "URL", "--", "true"],
        ["exec", "--lock", "x", "URL"],
    ],
)
def test_url_in_the_wrong_place_keeps_its_password(words: list[str]) -> None:
    url = "redis://user:s3cret/@host"
    assert_one_sentence(call(*(url if word == "URL" else word for word in words)), "redis://user:***@host")


def test_wrong_credentials(postgres: Postgres) -> None:
    url = f"postgresql://nobody:s3cret@{postgres.address}/postgres"
    assert_one_sentence(call("exec", "--store", url, "--lock", "x", "--", "true"), "nobody")


@pytest.fixture(scope="module")
def guarded_valkey() -> Iterator[Valkey]:
    with Valkey(password="right") as server:
        yield server


@pytest.mark.parametrize("account", [":s3cret@", "nobody:s3cret@", ""])
def test_wrong_password(account: str, guarded_valkey: Valkey) -> None:
    url = f"redis://{account}{guarded_valkey.address}/0"
    assert_one_sentence(call("exec", "--store", url, "--lock", "x", "--", "true"), "password in the URL")


def test_missing_extra(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError(\"No module named 'psycopg'\", name='psycopg')")
    done = fencepost("locks", "list", "--store", "postgresql://host/db", env={"PYTHONPATH": str(tmp_path)})
    assert_one_sentence(done, "pip install './fencepost[postgres]' from a clone")
