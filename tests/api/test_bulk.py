"""Dead letters and bulk work by a server that has the application's code."""

from fencepost.access import Access
from fencepost.core.rights import Scope
from fencepost.web import web
from tests.api.serving import served
from tests.cli.bulk_shop import BulkShop, empty_files, used_files, used_shop
from tests.cli.inside import call

__all__ = ["empty_files", "used_files", "used_shop"]

READING = ["letters list", "letters list --json", "letters list settle --state new --limit 2", "letters show 1 --json"]
READING += ["letters show 999", "letters list nothing", "bulk show 1", "bulk show 1 --json", "bulk show 999"]
ACTING = [
    "letters replay settle 1 --reason why",
    "letters drop settle 2 --reason why --json",
    "bulk forget 1 --reason x",
]


def test_letters_and_bulk_work_are_the_same_by_a_server(used_shop: BulkShop) -> None:
    made = Access(used_shop.app.ledger, Scope.direct("root")).add_api_token("cli", "admin", expires_in="1d")
    with served(web(used_shop.app)) as address:

        def remote(line: str) -> tuple[int, str, str]:
            done = call("--server", address, *line.split(), env={"FENCEPOST_TOKEN": made.secret})
            return done.returncode, done.stdout, done.stderr

        for line in READING:
            beside = used_shop.call(*line.split())
            assert remote(line) == (beside.returncode, beside.stdout, beside.stderr), line
        codes = [remote(line) for line in ACTING]
    assert [code for code, *_ in codes] == [0, 0, 2], codes
    assert "replays 1 letter" in codes[0][1]
    assert '"dropped": 1' in codes[1][1]
    assert [each["state"] for each in used_shop.call("letters", "list", "--json").json].count("dropped") == 1
