"""``fencepost tune``: the arithmetic of a chunk, from what some pages are like."""

from pathlib import Path
from typing import Any

import pytest

from fencepost.bulk import keyset
from fencepost.bulk.tuning import InputSample, Tuning
from fencepost.core.sizing import OVERHEAD_BYTES, Sizing, memory_bytes
from tests.cli.bulk_shop import ORDERS, BulkShop, MakeShop, empty_files, make_shop, refusal
from tests.cli.inside import call

__all__ = ["empty_files", "make_shop"]

MB = 1024**2


def opened(make_shop: MakeShop, **options: Any) -> BulkShop:
    shop = make_shop(**options)
    shop.open(range(1, 3001))
    return shop


def tuned(shop: BulkShop, *words: str) -> dict[str, Any]:
    [step] = shop.call("tune", "settle", "--json", *words).json["steps"]
    return step


def test_it_measures_what_it_reads_and_writes_nothing(make_shop: MakeShop, tmp_path: Path) -> None:
    shop = opened(make_shop, chunk=500, partitions=4)
    before = [(tmp_path / name).read_bytes() for name in ("ledger.db", "target.db")]
    step = tuned(shop, "--pages", "4")
    sample = step["sample"]
    assert (sample["items"], sample["pages"], sample["all"]) == (2000, 4, False)
    assert 50 < sample["bytes_per_item"] < 500
    assert sample["rate"] > 0
    assert (step["copies"], step["workers"], step["chunk"]) == (4, 4, 500)
    assert step["peak_bytes"] == memory_bytes(500, sample["bytes_per_item"], copies=4, workers=4)
    assert [(tmp_path / name).read_bytes() for name in ("ledger.db", "target.db")] == before
    assert shop.settled() == []
    assert shop.processed == []


def test_the_arithmetic_is_spelled_out(make_shop: MakeShop) -> None:
    shown = opened(make_shop, chunk=500, partitions=4, read_ahead=2).call("tune", "settle").stdout
    step = f"× 5 copies × 4 workers + {OVERHEAD_BYTES // MB} MB × 4 of overhead = "
    assert "500 items × " in shown
    assert step in shown
    assert "chunk=500 allows 500" in shown
    assert "suggested  chunk=" in shown


def test_a_budget_of_memory_decides_the_chunk(make_shop: MakeShop) -> None:
    step = tuned(opened(make_shop, chunk=1_000_000, memory="50MB"))
    assert step["sample"]["all"]
    size = step["sample"]["bytes_per_item"]
    assert step["limits"][1]["why"] == "memory=50 MB"
    assert step["chunk"] == step["limits"][1]["items"] == pytest.approx(2 * MB / (size * step["copies"]), rel=0.01)
    assert step["peak_bytes"] <= 50 * MB
    assert step["suggested"]["peak_bytes"] <= 50 * MB


def test_a_budget_that_the_workers_alone_exceed_is_told(make_shop: MakeShop) -> None:
    shop = opened(make_shop, memory="100MB", partitions=4)
    assert "is less than 4 workers take before their first item" in shop.call("tune", "settle").stdout


def test_nothing_to_read_is_said(make_shop: MakeShop) -> None:
    shop = make_shop()
    shop.open([1])
    shop.execute("DELETE FROM orders")
    assert "there is nothing to read" in shop.call("tune", "settle").stdout
    assert tuned(shop)["suggested"] is None


def test_parameters_and_the_window_are_those_of_the_query(make_shop: MakeShop) -> None:
    shop = opened(make_shop)
    query = ORDERS.replace("WHERE", "WHERE id <= :most AND :window_start < :window_end AND")

    @shop.app.bulk(name="some", target=shop.engine)
    class Some:
        read = keyset(query, key="id")

        def __init__(self, most: int) -> None:
            self.most = most

        def write(self, tx: Any, items: Any) -> None: ...

    def read(*words: str) -> int:
        [step] = shop.call("tune", "some", "--json", *words).json["steps"]
        return int(step["sample"]["items"])

    assert read("-p", "most=12", "--from", "24h") == 12
    assert read("-p", "most=12") == 0  # an empty window, as of a run that is asked for now
    assert "most" in refusal(shop.call("tune", "some"))
    assert "ends before it begins" in refusal(shop.call("tune", "some", "-p", "most=1", "--to", "24h", "--from", "1h"))
    assert "did you mean 'settle'" in refusal(shop.call("tune", "setle"), 1)


def tuning(*, bytes_per_item: float, rate: float, memory: int | None = None) -> Tuning:
    sample = InputSample(1000, 1, bytes_per_item, 1000 / rate, is_all=False)
    return Tuning(sample, Sizing(2000, memory_bytes=memory), copies=4, workers=2)


@pytest.mark.parametrize(
    ("given", "chunk", "why"),
    [
        (tuning(bytes_per_item=200, rate=25_000), 2000, "0.1 s of reading"),
        (tuning(bytes_per_item=200, rate=10_000_000), 10_000, "at most 10,000"),
        (tuning(bytes_per_item=100_000, rate=25_000), 50, "in one transaction"),
        (tuning(bytes_per_item=10_000, rate=100_000, memory=100 * MB), 50, "of memory for all workers"),
        (tuning(bytes_per_item=200, rate=3), 100, "0.1 s of reading"),
    ],
)
def test_what_is_suggested_keeps_to_the_narrowest_limit_and_says_which(given: Tuning, chunk: int, why: str) -> None:
    assert given.suggested.items == chunk
    assert why in given.suggested.why


def test_a_step_that_reads_nothing_cannot_be_measured(make_shop: MakeShop) -> None:
    shop = make_shop()

    class Prepare:
        def work(self, run: Any) -> None: ...

    @shop.app.bulk(name="prepare", target=shop.engine)
    class Job:
        steps = (Prepare,)

    assert "reads nothing" in refusal(shop.call("tune", "prepare", "--step", "Prepare"))
    assert shop.call("tune", "prepare", "--json").json["steps"] == []


def test_the_application_may_be_named_once_for_all_commands(
    make_shop: MakeShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = opened(make_shop)
    monkeypatch.chdir(tmp_path)
    for words in (("tune", "settle"), ("letters", "list"), ("bulk", "show", "1")):
        assert "--app, with FENCEPOST_APP, or with app = in" in refusal(call(*words, ledger=shop.ledger_url))
    (tmp_path / "fencepost.toml").write_text(f'app = "{shop.spec}"')
    assert call("tune", "settle", ledger=shop.ledger_url).returncode == 0
    (tmp_path / "fencepost.toml").write_text('app = "elsewhere:app"')
    assert "no module named 'elsewhere'" in refusal(call("tune", "settle", ledger=shop.ledger_url))
    assert call("tune", "settle", ledger=shop.ledger_url, env={"FENCEPOST_APP": shop.spec}).returncode == 0
