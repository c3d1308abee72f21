"""Bad input to the commands that use a ledger: one sentence that says what is wrong, no traceback, no password."""

from pathlib import Path

import pytest

from testbed.postgres import Postgres
from testbed.server import free_port
from tests.cli.command import fencepost
from tests.cli.inside import call, shop
from tests.cli.test_bad_input import assert_one_sentence

LEDGERS = {
    "unknown scheme": ("ftp://host/x", "ftp://"),
    "a store that is no ledger": ("redis://:s3cret@cache", "redis://"),
    "no scheme": ("ledger.db", "scheme://"),
    "a driver's name": ("postgresql+psycopg2://user:s3cret@host/db", "Leave out the driver: postgresql://…"),
    "bad port": ("postgresql://user:s3cret@host:port/db", "port"),
    "unknown option": ("sqlite:///x.db?colour=red", "colour"),
    "bad prefix": ("sqlite:///x.db?prefix=a;b", "prefix"),
    "no file": ("sqlite:///{tmp}/none.db", "there is no ledger at"),
    "no folder": ("sqlite:////proc/no/such/folder/x.db", "/proc/no/such"),
    "not a database": ("sqlite:///{tmp}/text.db", "text.db"),
    "an empty file": ("sqlite:///{tmp}/empty.db", "fencepost migrate"),
    "nobody listens: postgresql": ("postgresql://user:s3cret@127.0.0.1:{port}/db", "is its URL right?"),
    "nobody listens: mysql": ("mysql://user:s3cret@127.0.0.1:{port}/db", "is its URL right?"),
    "no such host": ("postgresql://user:s3cret@no-such-host.invalid/db", "no-such-host.invalid"),
}


@pytest.mark.parametrize("case", LEDGERS)
def test_ledger(case: str, tmp_path: Path) -> None:
    url, expected = LEDGERS[case]
    (tmp_path / "text.db").write_text("this is no database, and it is long enough to be looked at" * 100)
    (tmp_path / "empty.db").touch()
    ledger = url.replace("{tmp}", str(tmp_path)).replace("{port}", str(free_port()))
    assert_one_sentence(call("runs", "--ledger", ledger), expected)


def test_wrong_credentials(postgres: Postgres) -> None:
    assert_one_sentence(call("runs", "--ledger", f"postgresql://nobody:s3cret@{postgres.address}/postgres"), "nobody")


def test_a_database_that_is_not_there_is_to_be_made(postgres: Postgres) -> None:
    url = f"{postgres.url.rpartition('/')[0]}/no_such_database"
    assert_one_sentence(call("runs", "--ledger", url), "no_such_database", "make it first: createdb NAME")


def test_a_node_on_a_database_without_tables_says_what_to_run(postgres_url: str) -> None:
    done = fencepost("run", "tests.cli.shop:app", env={"FENCEPOST_URL": postgres_url})
    assert_one_sentence(done, "fencepost migrate --ledger")


def test_a_node_that_cannot_reach_its_ledger_says_so() -> None:
    url = f"postgresql://user:s3cret@127.0.0.1:{free_port()}/db"
    done = fencepost("run", "tests.cli.shop:app", env={"FENCEPOST_URL": url})
    assert_one_sentence(done, "is its URL right?")


def test_settings_that_are_wrong_say_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "fencepost.toml").write_text("tll = '5s'\n")
    assert_one_sentence(fencepost("runs", cwd=tmp_path, env={"FENCEPOST_URL": ""}), "fencepost.toml", "'ttl'")
    assert_one_sentence(call("runs", ledger="no url"), "FENCEPOST_URL")


WORDS = {
    "bad cron": (["schedules", "preview", "61 * * * *"], "'61' is not a valid minute"),
    "cron never due": (["schedules", "preview", "0 0 31 4 *"], "can never match"),
    "too few fields": (["schedules", "preview", "* * *"], "* * *"),
    "unknown zone": (["schedules", "preview", "@daily", "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'?"),
    "zone as a path": (["schedules", "preview", "@daily", "--tz", "../../etc/passwd"], "time zone"),
    "unknown dst": (["schedules", "preview", "@daily", "--dst", "maybe"], "maybe"),
    "bad interval": (["schedules", "preview", "every now and then"], "now and then"),
    "year outside the calendar": (["schedules", "preview", "@daily", "--year", "3000"], "3000"),
    "unknown state": (["runs", "--state", "failled"], "failled"),
    "bad since": (["runs", "--since", "yesterday"], "yesterday"),
    "since without zone": (["runs", "--since", "2026-01-01T00:00"], "time zone"),
    "follow back": (["runs", "--follow", "--before", "7"], "--before"),
    "follow until": (["runs", "--follow", "--until", "1h"], "--until"),
    "follow ids": (["runs", "--follow", "--id", "7"], "--id"),
    "waits for what": (["runs", "--waits", "godot"], "nothing waits for 'godot'"),
    "no number of a run": (["runs", "--retry-of", "x"], "'x' is not the number of a run"),
    "bad limit": (["runs", "--limit", "0"], "--limit"),
    "bad run": (["show", "seven"], "'seven' is not the number of a run; fencepost runs lists them"),
    "negative run": (["show", "-7"], "-7"),
    "why at a bad time": (["why", "settle", "--at", "noon"], "noon"),
    "a time that never came": (
        ["why", "settle", "--at", "2026-03-29T02:30", "--tz", "Europe/Berlin"],
        "is left out by the clocks",
    ),
    "a time that came twice": (
        ["why", "settle", "--at", "2026-10-25T02:30", "--tz", "Europe/Berlin"],
        "comes twice on the clocks",
    ),
    "backfill without a range": (["backfill", "settle"], "--from"),
    "bad delay": (["trigger", "add", "-p", "a=1", "--delay", "soon"], "soon"),
    "unknown option": (["runs", "--frob"], "--frob"),
    "demo for no time": (["demo", "--seconds", "a while"], "a while"),
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    from fencepost.app.composing import publish
    from tests.cli.inside import shop

    url = f"sqlite:///{tmp_path_factory.mktemp('bad')}/ledger.db"
    app = shop(url)
    publish(app)
    app.close()
    return url


@pytest.mark.parametrize("case", WORDS)
def test_words(case: str, ledger: str) -> None:
    words, expected = WORDS[case]
    assert_one_sentence(call(*words, ledger=ledger), expected)


@pytest.mark.parametrize(
    "words", [["show"], ["cancel"], ["retry"], ["release"], ["show", "--follow"], ["cancel", "--json"]]
)
def test_a_run_with_a_number_beyond_64_bits_does_not_exist(words: list[str], ledger: str) -> None:
    done = call(*words, "1" + "0" * 30, ledger=ledger)
    assert_one_sentence(done, f"there is no run 1{'0' * 30}", code=1)


def test_pages_from_a_number_beyond_64_bits(ledger: str) -> None:
    beyond = "1" + "0" * 30
    for words in (["runs", "--before", beyond], ["runs", "--limit", beyond], ["journal", "--before", beyond],
                  ["journal", "--run", beyond], ["nodes", "--all", "--limit", beyond]):  # fmt: skip
        assert isinstance(call(*words, "--json", ledger=ledger).json, list)


@pytest.mark.parametrize("command", ["trigger", "retry", "cancel", "release", "show", "why", "backfill"])
def test_a_command_without_its_word_points_to_its_help(command: str) -> None:
    assert_one_sentence(call(command), f"fencepost {command} --help")


COMMANDS = [
    "run",
    "demo",
    "chaos",
    "jobs",
    "runs",
    "show",
    "why",
    "nodes",
    "leader",
    "journal",
    "trigger",
    "retry",
    "cancel",
    "release",
    "reprocess",
    "backfill",
    "migrate",
]


@pytest.mark.parametrize(
    "command", [*COMMANDS, "schedules list", "schedules show", "schedules preview", "schedules delete", "jobs forget"]
)
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = call(*command.split(), "--help")
    assert done.returncode == 0
    assert f"fencepost {command.split(maxsplit=1)[0]}" in done.stdout
    assert "Example: " in done.stdout


def test_lease_file_that_cannot_be_written(tmp_path: Path) -> None:
    """Not for want of rights, which a root user has anyway: SQLite does not write what a later format has marked."""
    ledger = f"sqlite:///{tmp_path}/jobs.db"
    app = shop(ledger)
    app.start()
    app.stop()
    app.close()
    leases = tmp_path / "jobs.leases.db"
    content = bytearray(leases.read_bytes())
    content[18] = 9  # the version that a writer has to know
    leases.write_bytes(content)
    refused = fencepost("exec", "--store", ledger, "--lock", "x", "--", "true")
    assert "it cannot be written: check the rights on it and on its folder" in refused.stderr
    assert "for long" not in refused.stderr
    assert call("why", "beat", ledger=ledger).returncode == 0, "who only looks needs no lease"
