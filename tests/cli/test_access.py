"""``fencepost users``, ``permissions`` and ``api-tokens``: no password in an argument, and always an admin."""

import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from fencepost.access import passwords
from tests.cli.inside import Done

GOOD = "correct horse battery"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2id itself is tested in tests/access."""
    monkeypatch.setattr(passwords, "hash_password", lambda password: f"hash of {len(password)} characters")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(f"{GOOD}\n")
    return str(path)


def sentence(done: Done) -> str:
    assert (done.returncode, done.stdout) == (2, ""), done
    return done.stderr


def test_first_admin_is_added_and_cannot_be_lost(act, file):
    assert "users add NAME --role admin" in act("users", "list").stdout
    done = act("users", "add", "ann", "--role", "admin", "--password-file", file)
    assert done.stdout == "added account ann with the role admin on all jobs\n"
    for words in (
        ("users", "remove", "ann"),
        ("users", "disable", "ann"),
        ("permissions", "give", "user:ann", "viewer"),
        ("permissions", "take", "user:ann", "--all"),
    ):
        assert "last admin" in sentence(act(*words))
    act("users", "add", "bob", "--role", "admin", "--password-file", file)
    assert act("users", "disable", "ann", "--reason", "left").returncode == 0
    [ann, bob] = act("users", "list", "--json").json
    assert (ann["name"], ann["has_password"], bob["disabled_at"]) == ("ann", True, None)
    assert ann["disabled_at"].endswith("Z")
    assert act("users", "enable", "ann").returncode == 0
    assert act("users", "remove", "ann", "--json").json == {"name": "ann"}
    assert "hash of" not in act("users", "list", "--json").stdout + act("audit", "export").stdout


def test_what_is_refused_anyway_is_refused_before_a_password_is_asked_for(act, file, monkeypatch):
    act("users", "add", "ann", "--password-file", file)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: pytest.fail(f"asked {prompt!r}"))
    assert "'boss' is not a role: viewer, operator or admin" in sentence(act("users", "add", "bob", "--role", "boss"))
    assert "there is an account 'ann' already" in sentence(act("users", "add", "ann"))
    assert "is not a valid name" in sentence(act("users", "add", "a b"))


def test_tokens_that_ended_are_counted_where_they_are_not_shown(act):
    act("api-tokens", "add", "ci", "viewer")
    assert "not shown" not in act("api-tokens", "list").stdout
    [made] = act("api-tokens", "list", "--json").json
    act("api-tokens", "revoke", made["id"])
    listed = act("api-tokens", "list").stdout
    assert "(not shown: 1 API token that expired or was revoked; fencepost api-tokens list --all)" in listed
    assert "not shown" not in act("api-tokens", "list", "--all").stdout
    assert act("api-tokens", "list", "--json").json == []


def test_password_comes_from_a_file_from_standard_input_or_from_a_terminal(act, file, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.StringIO(GOOD))
    assert act("users", "add", "ann", "--password-file", "-").stdout == "added account ann; it has no role yet\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "no terminal" in sentence(act("users", "password", "ann"))
    assert "cannot be read" in sentence(act("users", "password", "ann", "--password-file", str(tmp_path / "none")))
    (tmp_path / "two").write_text(f"{GOOD}\n{GOOD}\n")
    assert "one line" in sentence(act("users", "password", "ann", "--password-file", str(tmp_path / "two")))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    typed = iter([GOOD, "another one", GOOD, GOOD])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    assert "differ" in sentence(act("users", "password", "ann"))
    assert act("users", "password", "ann").returncode == 0
    assert "No such option" in act("users", "password", "ann", "--password", GOOD).stderr
    assert act("users", "password", "bob", "--password-file", file).returncode == 1
    assert "already" in sentence(act("users", "add", "ann", "--password-file", file))


def test_permissions_are_given_taken_and_listed(act, file):
    act("users", "add", "ann", "--password-file", file)
    assert "nobody has a permission" in act("permissions", "list").stdout
    done = act("permissions", "give", "user:ann", "operator", "--job", "add", "--job", "ad")
    assert done.stdout == "user:ann has the role operator on add, ad\n"
    assert "no node has registered a job 'ad'" in done.stderr
    act("permissions", "give", "proxy:eve", "viewer", "--by", "root")
    found = act("permissions", "list", "--json").json
    assert [(each["principal"], each["role"], each["job"]) for each in found] == [
        ("proxy:eve", "viewer", None),
        ("user:ann", "operator", "ad"),
        ("user:ann", "operator", "add"),
    ]
    assert "all jobs" in act("permissions", "list", "proxy:eve").stdout
    assert act("permissions", "take", "user:ann", "--job", "ad", "--json").json["taken"] == 1
    assert act("permissions", "take", "user:ann", "--all").stdout == "took 1 permission from user:ann\n"
    act("permissions", "give", "user:ann", "viewer", "--job", "add")
    none = act("permissions", "take", "user:ann", "--job", "ad")
    assert (none.returncode, none.stdout) == (1, "")
    assert "user:ann has no permission on ad, so none was taken away; it has: viewer on add" in none.stderr
    assert "user:ann has no permission on all jobs" in act("permissions", "take", "user:ann").stderr
    none = act("permissions", "take", "proxy:bob", "--all", "--json")
    assert (none.returncode, json.loads(none.stdout)) == (1, {"principal": "proxy:bob", "taken": 0})
    for words, code in ((["bob"], 2), (["user:bob"], 1)):
        for verb in ("list", "take"):
            done = act("permissions", verb, *words)
            assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)
    assert "not both" in sentence(act("permissions", "take", "user:ann", "--all", "--job", "add"))
    assert "not a role" in sentence(act("permissions", "give", "user:ann", "root"))
    assert act("permissions", "give", "user:bob", "viewer").returncode == 1


def test_api_token_is_shown_once(act):
    assert "there are no API tokens" in act("api-tokens", "list").stdout
    done = act("api-tokens", "add", "ci", "viewer", "--job", "add", "--expires-in", "30d", "--by", "ann")
    secret = done.stdout.splitlines()[-1]
    assert secret.startswith("fp_")
    [token] = act("api-tokens", "list", "--json").json
    assert (token["name"], token["created_by"], token["used_at"]) == ("ci", "ann", None)
    assert secret not in act("api-tokens", "list", "--json").stdout + act("audit", "export").stdout
    assert act("api-tokens", "revoke", token["id"]).stdout == f"API token {token['id']} has ended\n"
    assert act("api-tokens", "list", "--json").json == []
    assert "ci" in act("api-tokens", "list", "--all").stdout
    assert act("api-tokens", "revoke", "none").returncode == 1
    assert "366 days" in sentence(act("api-tokens", "add", "ci", "viewer", "--expires-in", "400d"))
    assert act("api-tokens", "add", "ci", "viewer", "--json").json["secret"].startswith("fp_")


def test_what_the_page_on_rights_types_works_in_its_order(act, file, monkeypatch):
    page = (Path(__file__).parent.parent.parent / "docs" / "rights.md").read_text()
    lines = re.findall(r"^\$ fencepost (.+)$", page, re.MULTILINE)
    assert len(lines) > 8
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: GOOD)
    token = ""
    for line in lines:
        words = [file if each.startswith("/run/secrets") else each for each in shlex.split(line, comments=True)]
        done = act(*(token if each == "5e0c41d2a7b93f60" else each for each in words))
        assert done.returncode == 0, (line, done.stderr)
        token = done.stdout.split()[2] if words[:2] == ["api-tokens", "add"] else token
