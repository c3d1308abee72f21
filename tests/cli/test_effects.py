"""``fencepost effects``: the tables that receive effects, installed, verified and pruned from the command line."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import fencepost
from fencepost.schema.effects import NEWEST, STEPS
from testbed.postgres import Postgres
from testbed.server import free_port
from tests.cli.bulk_shop import BulkShop, MakeShop, empty_files, make_shop
from tests.cli.inside import Done, call

__all__ = ["empty_files", "make_shop"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/effects.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/effects.db"
    assert call("effects", "install", url).returncode == 0
    return url


def in_one_sentence(done: Done, code: int = 2) -> str:
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done
    return done.stderr


def test_what_is_missing_is_named_until_it_is_installed(url: str) -> None:
    before = call("effects", "verify", url)
    assert before.returncode == 1
    for table in ("fence", "idempotency_key", "checkpoint", "dead_letter", "effects_version"):
        assert f"_{table}" in before.stdout
    assert f"revision  none (wanted: {NEWEST})" in before.stdout
    assert f"run: fencepost effects install '{url}'" in before.stdout
    assert call("effects", "install", url, "--json").json["steps"] == list(STEPS)
    after = call("effects", "verify", url)
    assert after.returncode == 0
    assert "effects can land here" in after.stdout


def test_a_second_install_does_nothing(url: str) -> None:
    first = call("effects", "install", url)
    assert "made the tables of effects" in first.stdout
    again = call("effects", "install", url)
    assert (again.returncode, "nothing was done" in again.stdout) == (0, True)
    assert call("effects", "install", url, "--json").json["steps"] == []


def test_verify_speaks_json_also_when_it_fails(url: str) -> None:
    done = call("effects", "verify", url, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ready"], report["found"], report["wanted"]) == (1, False, None, NEWEST)
    assert len(report["missing"]) == (6 if url.startswith("postgresql") else 5)
    assert report["denied"] == []
    call("effects", "install", url)
    assert call("effects", "verify", url, "--json").json["ready"] is True


@pytest.mark.parametrize("kind", ["postgresql://nowhere/x?schema=jobs", "mysql://nowhere/x", "sqlite:///nowhere/x.db"])
def test_statements_are_printed_without_a_database(kind: str) -> None:
    script = call("effects", "install", "--sql", kind).stdout
    assert "fencepost_fence" in script
    assert "CREATE SCHEMA" in script or "schema" not in kind
    assert call("effects", "install", "--sql", kind, "--json").json["sql"].strip() == script.strip()


def test_printed_statements_are_those_that_install_runs(postgres: Postgres, postgres_url: str) -> None:
    import psycopg

    script = call("effects", "install", "--sql", postgres_url).stdout
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(script)
    assert call("effects", "install", postgres_url, "--json").json["steps"] == []
    assert call("effects", "verify", postgres_url).returncode == 0


def test_no_password_is_shown(postgres: Postgres) -> None:
    url = f"postgresql://postgres:s3cret@{postgres.address}/postgres?prefix=p2_"
    for words in (["verify"], ["prune"], ["install"], ["install"], ["verify"], ["prune"], ["verify", "--json"]):
        done = call("effects", words[0], url, *words[1:])
        assert "s3cret" not in done.stdout + done.stderr, words
    assert "with the password in place of ***" in call("effects", "verify", url.replace("p2_", "p3_")).stdout


def test_newer_tables_are_refused(file: str) -> None:
    _execute(file, "UPDATE fencepost_effects_version SET version_num = '9999'")
    assert "newer Fencepost (revision 9999)" in in_one_sentence(call("effects", "install", file))
    done = call("effects", "verify", file)
    assert (done.returncode, f"revision  9999 (wanted: {NEWEST})" in done.stdout) == (1, True)


def test_looking_makes_no_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/misspelt.db"
    assert "run: fencepost effects install" in call("effects", "verify", url).stdout
    for options in ([], ["--dry-run"]):
        assert "no tables of effects" in in_one_sentence(call("effects", "prune", url, *options))
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_does_not_answer_is_not_called_a_ledger() -> None:
    for command in ("install", "verify", "prune"):
        said = in_one_sentence(call("effects", command, f"postgresql://user:s3cret@127.0.0.1:{free_port()}/db"))
        assert "is its URL right?" in said
        assert "ledger" not in said


def test_expired_keys_are_pruned_and_others_stay(file: str) -> None:
    with closing(sqlite3.connect(file.removeprefix("sqlite:///"))) as connection, connection:
        for number in range(3):
            fencepost.once(f"old:{number}", connection, expires="1h")
        fencepost.once("young", connection, expires="1h")
    _execute(file, "UPDATE fencepost_idempotency_key SET expires_at = 5 WHERE key LIKE 'old%'")
    assert "would remove 3 expired keys" in call("effects", "prune", file, "--dry-run").stdout
    done = call("effects", "prune", file)
    assert "removed 3 expired keys" in done.stdout
    assert "fences were left as they are" in done.stdout
    assert call("effects", "prune", file, "--keys", "--json").json["keys"] == 0
    assert _rows(file, "SELECT key FROM fencepost_idempotency_key") == [("young",)]


def test_fences_are_pruned_below_what_lives_in_the_ledger(file: str, tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    call("migrate", "--ledger", ledger)
    _execute(file, "INSERT INTO fencepost_fence VALUES ('job:old', 5, 'g', NULL, 0), ('job:new', 9e15, 'g', NULL, 0)")
    words = ("effects", "prune", file, "--fences", "--ledger", ledger)
    tried = call(*words, "--dry-run", "--json").json
    assert (tried["fences"], tried["dry_run"], tried["keys"]) == (1, True, None)
    done = call(*words)
    assert "removed 1 fence below" in done.stdout
    assert "30d ago" in done.stdout
    assert [key for (key,) in _rows(file, "SELECT key FROM fencepost_fence ORDER BY 1")] == ["", "job:new"]


def test_fences_are_not_pruned_without_a_ledger_and_it_says_why(file: str) -> None:
    assert "only the ledger knows which tokens are still live" in in_one_sentence(
        call("effects", "prune", file, "--fences")
    )


@pytest.fixture
def old_shop(make_shop: MakeShop) -> BulkShop:
    """A shop whose one run, of forty days ago, has settled thirty orders but for two, which were poison."""
    shop = make_shop(partitions=2, over="threads")
    shop.open(range(1, 31))
    shop.poison = {7, 21}
    assert shop.run().state == "succeeded"
    assert shop.call("letters", "drop", "settle", "1", "--reason", "a test order").returncode == 0
    for table, column in (("checkpoint", "updated_at"), ("dead_letter", "created_at")):
        shop.execute(f"UPDATE fencepost_{table} SET {column} = {column} - 40 * 86400000000")
    return shop


def test_what_bulk_jobs_left_is_pruned_when_it_is_asked_for(old_shop: BulkShop) -> None:
    shop = old_shop
    assert "checkpoints and dead letters of bulk jobs: see" in call("effects", "prune", shop.target_url).stdout
    words = ("effects", "prune", shop.target_url, "--checkpoints", "--letters", "--ledger", shop.ledger_url)
    tried = call(*words, "--dry-run", "--json").json
    assert (tried["checkpoints"], tried["checkpoints_kept"], tried["letters"], tried["keys"]) == (3, 0, 1, None)
    assert call(*words, "--older-than", "50d", "--json").json["checkpoints"] == 0
    done = call(*words).stdout
    assert done.splitlines() == ["removed 3 checkpoints of 1 completed instance", "removed 1 settled dead letter"]
    assert [state for _, state, *_ in shop.letters()] == ["new"]


def test_a_repetition_is_refused_until_its_checkpoints_are_pruned_and_then_does_it_again(old_shop: BulkShop) -> None:
    shop = old_shop
    words = ("effects", "prune", shop.target_url, "--checkpoints", "--ledger", shop.ledger_url)
    waiting = shop.app.operations.retry(1, by="ann")
    assert "3 checkpoints as old stay" in call(*words).stdout
    assert [row.state for row in shop.drive(waiting)] == ["skipped"]
    assert "removed 3 checkpoints" in call(*words).stdout
    shop.execute("DELETE FROM settled")
    assert [row.state for row in shop.drive(shop.app.operations.retry(1, by="ann"))] == ["succeeded"]
    assert len(shop.settled()) == 28


def test_checkpoints_are_not_pruned_without_a_ledger_and_it_says_why(file: str) -> None:
    said = in_one_sentence(call("effects", "prune", file, "--checkpoints"))
    assert "only the ledger knows which runs have not ended" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["install", "redis://cache"], "redis://"),
        (["install"], "Missing argument"),
        (["verify", "sqlite:///"], "needs a file"),
        (["prune", "{file}", "--ledger", "sqlite:///x.db"], "add --fences"),
        (["prune", "{file}", "--letters", "--ledger", "sqlite:///x.db"], "or --checkpoints"),
        (["prune", "{file}", "--checkpoints", "--ledger", "sqlite:///nowhere.db"], "no ledger at"),
        (["prune", "{file}", "--older-than", "5 parsecs"], "not a valid duration"),
        (["prune", "{file}", "--fences", "--ledger", "sqlite:///nowhere.db"], "no ledger at"),
        (["prune", "sqlite:///{folder}/bare.db"], "fencepost effects install"),
    ],
)
def test_bad_words(words: list[str], says: str, file: str, tmp_path: Path) -> None:
    done = call("effects", *(word.format(file=file, folder=tmp_path) for word in words))
    assert says in in_one_sentence(done)


def test_a_young_fence_is_no_bad_word_for_long(file: str, tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    call("migrate", "--ledger", ledger)
    done = call("effects", "prune", file, "--fences", "--ledger", ledger, "--older-than", "1h")
    assert "1h is too short" in in_one_sentence(done)


@pytest.mark.parametrize("verb", ["install", "verify", "prune"])
def test_help_has_an_example(verb: str) -> None:
    assert f"Example: fencepost effects {verb}" in call("effects", verb, "--help").stdout


def _execute(url: str, sql: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(sql)


def _rows(url: str, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return connection.execute(sql).fetchall()
