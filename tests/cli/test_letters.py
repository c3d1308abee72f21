"""``fencepost letters``: letters looked at, replayed and dropped from the command line."""

import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import text

from fencepost import App
from fencepost.app.operations import Operations
from fencepost.bulk import keyset
from fencepost.core.rights import Scope
from fencepost.errors import AlreadyRequested, ConfigurationError, InvalidParameters, NoSuchLetter
from testbed.postgres import Postgres
from tests.cli.bulk_shop import ORDERS, BulkShop, MakeShop, empty_files, make_shop, refusal, used_files, used_shop
from tests.cli.inside import call

__all__ = ["empty_files", "make_shop", "used_files", "used_shop"]

REASON = ("--reason", "the account is there now", "--by", "ann")


@pytest.fixture
def shop(used_shop: BulkShop) -> BulkShop:
    return used_shop


def run_ids(shop: BulkShop) -> list[int]:
    return [each["id"] for each in shop.call("runs", "--json").json]


# -- looking ---------------------------------------------------------------------------------------------------------


def test_letters_are_listed_newest_first_with_all_that_is_known(shop: BulkShop) -> None:
    listed = shop.call("letters", "list", "--json").json
    assert [each["key"] for each in listed] == ["id=22", "id=21", "id=7"]
    last = listed[-1]
    assert last | {"created_at": "", "database": ""} == {
        "id": 1,
        "job": "settle",
        "step": "main",
        "instance": "run-1",
        "run_id": 1,
        "state": "new",
        "item_key": "id=7",
        "item": [7, 5],
        "shown": "[7, 5]",
        "error_code": "ValueError",
        "error": "order 7 is poison",
        "tries": 1,
        "created_at": "",
        "can_be_replayed": True,
        "database": "",
        "run": 1,
        "key": "id=7",
        "attempt": 1,
    }
    assert last["created_at"].endswith("Z")
    assert last["database"] == shop.target_url
    table = shop.call("letters", "list", "settle").stdout
    assert "ValueError: order 21 is poison" in table


def test_a_list_goes_on_from_a_number_and_keeps_to_a_state(shop: BulkShop) -> None:
    shop.call("letters", "drop", "settle", "2", *REASON)

    def listed(*words: str) -> list[int]:
        return [each["id"] for each in shop.call("letters", "list", "settle", "--json", *words).json]

    assert listed("--limit", "2") == [3, 2]
    assert listed("--before", "3") == [2, 1]
    assert listed("--state", "new") == [3, 1]
    assert listed("--state", "dropped") == [2]
    assert listed("--step", "main") == [3, 2, 1]
    assert shop.call("letters", "list", "--state", "replayed").stdout == "there are no such letters\n"
    assert "did you mean 'dropped'" in refusal(shop.call("letters", "list", "--state", "droped"))


def test_one_letter_is_shown_with_its_item(shop: BulkShop) -> None:
    shown = shop.call("letters", "show", "2").stdout
    for word in ("2 in sqlite:", "id=21", "[21, 5]", "ValueError: order 21 is poison", "run-1"):
        assert word in shown
    assert shop.call("letters", "show", "2", "--json").json["item"] == [21, 5]
    assert "no dead letter 99 of the bulk jobs" in refusal(shop.call("letters", "show", "99"), 1)
    beyond = str(10**30)  # more than 64 bits
    assert f"no dead letter {beyond} of" in refusal(shop.call("letters", "show", beyond), 1)
    assert f"no dead letter {beyond} of" in refusal(shop.call("letters", "drop", "settle", beyond, *REASON), 1)
    assert len(shop.call("letters", "list", "--before", beyond, "--json").json) == 3


def test_a_job_that_is_none_is_refused(shop: BulkShop) -> None:
    assert "did you mean 'settle'" in refusal(shop.call("letters", "list", "setle"), 1)
    assert "is no bulk job" in refusal(shop.call("letters", "list", "settle/part"))


@pytest.mark.parametrize("words", [("list", "--json"), ("list", "settle"), ("show", "2"), ("show", "99")])
def test_the_command_is_known_under_its_former_name(shop: BulkShop, words: tuple[str, ...]) -> None:
    assert shop.call("dead", *words) == shop.call("letters", *words)


def test_help_shows_the_present_name_alone() -> None:
    told = call("--help").stdout
    assert "│ letters " in told
    assert "│ dead " not in told
    assert "replay or drop them" in call("dead", "--help").stdout


def test_acts_are_known_under_the_former_name_too(shop: BulkShop) -> None:
    assert shop.call("dead", "replay", "settle", "1", *REASON, "--json").json["job"] == "settle/replay"
    assert shop.call("dead", "drop", "settle", "2", *REASON).stdout == "1 letter dropped\n"
    assert "say why" in refusal(shop.call("dead", "drop", "settle", "3"))


# -- by the application itself ---------------------------------------------------------------------------------------


def test_the_application_does_all_that_the_command_does(shop: BulkShop) -> None:
    letters = shop.app.operations.letters
    assert [each.item_key for each in letters.list()] == ["id=22", "id=21", "id=7"]
    assert [each.id for each in letters.list("settle", state="new", before_id=3, limit=1)] == [2]
    assert (letters.show(2).item, letters.show(2).database) == ([21, 5], shop.target_url)
    asked = letters.replay("settle", [1], by="ann", reason="the account is there now")
    assert asked is not None
    assert shop.app.operations.run(asked.run_id).params == {"letters": [1], "step": ""}
    with pytest.raises(AlreadyRequested):
        letters.replay("settle", [1], by="bob", reason="I did not know")
    assert letters.drop("settle", [2], by="ann", reason="a test order") == 1
    assert letters.show(2).state == "dropped"
    assert letters.drop("settle", all_new=True, by="ann", reason="all of them") == 2
    assert letters.replay("settle", all_new=True, by="ann", reason="is there more?") is None
    noted = [each.detail for each in shop.app.operations.journal(what="dead letters dropped")]
    assert noted == [{"letters": [3, 1]}, {"letters": [2]}]


def test_the_application_is_told_what_it_may_not_do(shop: BulkShop) -> None:
    letters, person = shop.app.operations.letters, {"by": "ann", "reason": "so"}
    for wrong, says in (
        (lambda: letters.drop("settle", **person), "which letters"),
        (lambda: letters.replay("settle", [1], all_new=True, **person), "not both"),
        (lambda: letters.drop("settle", [1], by="ann", reason=" "), "say why"),
        (lambda: letters.drop("settle", [1], by="", reason="so"), "say who"),
        (lambda: letters.list(state="droped"), "did you mean 'dropped'"),
    ):
        with pytest.raises(InvalidParameters, match=says):
            wrong()
    with pytest.raises(NoSuchLetter, match="no dead letter 99 of the bulk jobs"):
        letters.show(99)
    with pytest.raises(ConfigurationError, match="which needs their code"):
        _ = Operations(shop.app.ledger, Scope.direct()).letters
    assert {state for _, state, _, _ in shop.letters()} == {"new"}


# -- replaying -------------------------------------------------------------------------------------------------------


def test_a_replay_is_a_run_that_the_journal_tells_of(shop: BulkShop) -> None:
    asked = shop.call("letters", "replay", "settle", "1", "3", *REASON, "--json").json
    assert asked == {"run": asked["run"], "job": "settle/replay"}
    [entry] = shop.call("journal", "--run", str(asked["run"]), "--json").json
    assert (entry["what"], entry["by"], entry["reason"]) == ("run triggered", "ann", "the account is there now")
    run = shop.call("show", str(asked["run"]), "--json").json
    assert (run["params"]["letters"], run["reason"]) == ([1, 3], "the account is there now")
    shop.poison = {22}
    shop.drive(asked["run"])
    assert [(key, state) for key, state, _, _ in shop.letters()] == [
        ("id=7", "replayed"),
        ("id=21", "new"),
        ("id=22", "new"),
    ]
    assert shop.call("letters", "show", "3", "--json").json["attempt"] == 2


def test_all_that_are_new_are_replayed_up_to_now(shop: BulkShop) -> None:
    shop.call("letters", "drop", "settle", "1", *REASON)
    done = shop.call("letters", "replay", "settle", "--all", *REASON)
    assert "replays all letters that are new" in done.stdout
    shop.poison = set()
    [row] = shop.drive(max(run_ids(shop)))
    assert row.result["replayed"] == 2
    assert 7 not in shop.settled()
    assert shop.call("letters", "replay", "settle", "--all", *REASON).stdout == "there is nothing to replay\n"
    assert shop.call("letters", "replay", "settle", "--all", *REASON, "--json").json["run"] is None


def test_the_same_replay_is_not_asked_for_twice(shop: BulkShop) -> None:
    shop.call("letters", "replay", "settle", "1", *REASON)
    assert "asks for the same and is queued" in refusal(shop.call("letters", "replay", "settle", "1", *REASON), 4)


@pytest.mark.parametrize("act", ["replay", "drop"])
def test_what_cannot_be_done_is_refused_and_nothing_is(shop: BulkShop, act: str) -> None:
    def refused(*words: str, code: int = 2) -> str:
        return refusal(shop.call("letters", act, "settle", *words), code)

    assert "say why, with --reason" in refused("1")
    assert "which letters?" in refused(*REASON)
    assert "not both" in refused("1", "--all", *REASON)
    assert "no dead letter 98, 99 of job 'settle'; nothing was done" in refused("1", "98", "99", *REASON, code=1)
    shop.execute("UPDATE fencepost_dead_letter SET state = 'replayed' WHERE id = 2")
    assert "2 was replayed; nothing was done" in refused("1", "2", *REASON)
    assert run_ids(shop) == [1]
    assert [state for _, state, _, _ in shop.letters()] == ["new", "replayed", "new"]


def test_a_letter_whose_item_was_not_kept_is_refused_with_why(shop: BulkShop) -> None:
    shop.execute("""UPDATE fencepost_dead_letter SET payload = '{"step": "main", "shown": "<Order 7>"}' WHERE id = 1""")
    said = refusal(shop.call("letters", "replay", "settle", "1", "2", *REASON))
    assert "dead letter 1 (id=7) cannot be replayed: its item had no JSON form" in said
    assert run_ids(shop) == [1]
    assert "impossible" in shop.call("letters", "show", "1").stdout
    assert shop.call("letters", "drop", "settle", "1", *REASON).stdout == "1 letter dropped\n"


# -- dropping --------------------------------------------------------------------------------------------------------


def test_what_is_dropped_stays_on_record_and_in_the_journal(shop: BulkShop) -> None:
    assert shop.call("letters", "drop", "settle", "2", "1", "--reason", "test orders", "--by", "ann").returncode == 0
    assert [state for _, state, _, _ in shop.letters()] == ["dropped", "dropped", "new"]
    [entry] = shop.call("journal", "--what", "dead letters dropped", "--json").json
    assert (entry["job"], entry["by"], entry["reason"]) == ("settle", "ann", "test orders")
    assert entry["detail"] == {"letters": [1, 2]}
    assert shop.call("letters", "drop", "settle", "--all", *REASON, "--json").json["dropped"] == 1
    assert shop.call("letters", "drop", "settle", "--all", *REASON).stdout == "0 letters dropped\n"
    assert shop.settled() == [each for each in range(1, 31) if each not in (7, 21, 22)]


# -- several databases -----------------------------------------------------------------------------------------------


def test_a_number_that_means_two_letters_is_asked_about(make_shop: MakeShop, tmp_path: Any) -> None:
    shop = make_shop()
    shop.open(range(1, 4))
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/other.db")

    class First:
        read = keyset(ORDERS, key="id")

        def write(self, tx: Any, items: Any) -> None:
            raise ValueError("poison")

    class Second(First):
        target = other

    @shop.app.bulk(name="both", skip_limit=9, source=shop.engine, target=shop.engine)
    class Both:
        steps = (First, Second)

    shop.drive(Both.enqueue().run_id)
    listed = shop.call("letters", "list", "both", "--json").json
    assert [(each["step"], each["id"]) for each in listed] == [(s, n) for s in ("First", "Second") for n in (3, 2, 1)]
    assert "number 2 means a letter in each of several databases" in refusal(shop.call("letters", "show", "2"))
    assert "--step" in refusal(shop.call("letters", "drop", "both", "2", *REASON))
    assert shop.call("letters", "show", "2", "--step", "Second", "--json").json["step"] == "Second"
    assert shop.call("letters", "drop", "both", "2", "--step", "Second", *REASON).returncode == 0
    left = shop.call("letters", "list", "both", "--state", "new", "--json").json
    assert [(each["step"], each["id"]) for each in left] == [
        *(("First", number) for number in (3, 2, 1)),
        *(("Second", number) for number in (3, 1)),
    ]
    other.dispose()


def test_a_target_that_is_away_or_has_no_tables_is_told_in_one_sentence(make_shop: MakeShop, tmp_path: Any) -> None:
    shop = make_shop()
    bare = App(shop.ledger_url)
    where = {"nowhere": "postgresql://127.0.0.1:1/shop", "bare": f"sqlite:///{tmp_path}/bare.db"}
    for name, url in where.items():
        bare.bulk(name=name, read=keyset(ORDERS, key="id"), target=url)(lambda tx, items: None)
    sys.modules[shop.spec.partition(":")[0]].app = bare
    assert "the database that the job writes to cannot be used" in refusal(shop.call("letters", "list", "nowhere"))
    assert "fencepost effects install" in refusal(shop.call("letters", "list", "bare"))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_letters_may_be_in_the_ledgers_own_database(kind: str, tmp_path: Any, request: pytest.FixtureRequest) -> None:
    if kind == "sqlite":
        url = target = f"sqlite:///{tmp_path}/both.db"
    else:
        url, target = f"{request.getfixturevalue('postgres').url}?prefix=own_", request.getfixturevalue("postgres").url
    assert call("migrate", "--ledger", url).returncode == 0
    shop = BulkShop(url, target, target=None)
    shop.open(range(1, 6))
    shop.poison = {2, 3, 4}
    assert shop.run().state == "succeeded"
    dropped, failing, well = sorted(each["id"] for each in shop.call("letters", "list", "--json").json)
    assert shop.call("letters", "drop", "settle", str(dropped), *REASON).returncode == 0
    shop.poison = {3}
    shop.drive(shop.call("letters", "replay", "settle", str(failing), str(well), *REASON, "--json").json["run"])
    assert [state for _, state, _, _ in shop.letters()] == ["dropped", "new", "replayed"]
    assert shop.settled() == [1, 4, 5]
    for table in ("orders", "settled"):
        shop.execute(f"DROP TABLE {table}")
    shop.close()


@pytest.fixture
def pg_shop(postgres: Postgres) -> Iterator[BulkShop]:
    """A shop on PostgreSQL: the ledger in one database, the effects in another one."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE dead_letters")
    target = f"{postgres.url.rpartition('/')[0]}/dead_letters"
    ledger = f"{postgres.url}?prefix=dead_"
    assert call("migrate", "--ledger", ledger).returncode == 0
    assert call("effects", "install", f"{target}?prefix=dead_").returncode == 0
    shop = BulkShop(ledger, target, partitions=2)
    yield shop
    shop.close()


def test_on_postgresql_letters_of_partitions_are_replayed_and_dropped_in_their_own_database(pg_shop: BulkShop) -> None:
    shop = pg_shop
    shop.open(range(1, 201))
    shop.poison = {7, 150, 151}
    assert shop.run().state == "succeeded"
    listed = {each["key"]: each for each in shop.call("letters", "list", "settle", "--json").json}
    assert set(listed) == {"id=7", "id=150", "id=151"}
    assert {each["job"] for each in listed.values()} == {"settle"}
    dropped = str(listed["id=151"]["id"])
    assert shop.call("letters", "drop", "settle", dropped, *REASON).returncode == 0
    shop.poison = set()
    run = shop.call("letters", "replay", "settle", "--all", *REASON, "--json").json["run"]
    [row] = shop.drive(run)
    assert row.result["replayed"] == 2
    assert shop.settled() == [each for each in range(1, 201) if each != 151]
    with shop.engine.connect() as connection:
        states = dict(connection.execute(text("SELECT item_key, state FROM dead_dead_letter")).all())
    assert states == {"id=7": "replayed", "id=150": "replayed", "id=151": "dropped"}
