"""The demo, the example and the benchmarks run: smoke versions of what make does at length."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def run(*arguments: str, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment or None, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def last_line(output: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return result


def test_demo_ends_every_due_time_once_though_a_node_is_killed() -> None:
    output = run("-m", "fencepost", "demo", DEMO_SECONDS="12", PATH="/usr/bin:/bin")
    assert "kill -9 node-" in output
    assert "is lost (token" in output
    assert "starting node-4" in output
    assert "duplicates 0, missing 0, lost writes 0: every due time has one result" in output
    assert output.rstrip().endswith("in a browser: fencepost demo --web. Your own jobs: fencepost serve APP")


def test_locks_alone_keep_a_tick_from_being_done_twice_through_a_kill_and_a_pause() -> None:
    output = run("examples/own_scheduler.py", DEMO_SECONDS="14", PATH="/usr/bin:/bin")
    assert "kill -9 node-" in output
    assert "lost its lease, wrote nothing" in output
    assert "twice 0 · missed 0 · tokens rose with every holder" in output


def test_bench_leases_prints_ratios_as_its_last_line() -> None:
    few = ["--seconds", "0.05", "--rounds", "1", "--contended-seconds", "0.2"]
    few += ["--contended-rounds", "1", "--clients", "2"]
    output = run("bench/leases.py", "--json", *few, "--store", "redis")
    redis = last_line(output)["stores"]["redis"]
    assert redis["ratio"] > 0
    assert redis["ratio_contended"] > 0
    assert redis["renew_1000_round_trips"] == 1
    assert redis["vs_driver_lock"] > 0


def test_bench_takeover_measures_and_ends_as_its_figures_say() -> None:
    """The bound is for a quiet machine, so `make bench` judges it; here the program has to judge what it measured."""
    ended = subprocess.run(
        [sys.executable, "bench/takeover.py", "--json", "--kills", "2", "--store", "redis"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    measured = last_line(ended.stdout)
    redis = measured["stores"]["redis"]
    assert redis["kill_p50_s"] > 1.5  # of a ttl of 3 s: nobody is let in before the holder's trust has ended
    hand_over_s = max(redis["resign_p99_s"], redis["release_p99_s"])
    is_kept = redis["kill_p99_s"] <= measured["ttl_s"] + 1 and hand_over_s <= 0.3
    assert (redis["kept"], ended.returncode) == (is_kept, 0 if is_kept else 1), ended.stdout + ended.stderr


def test_interleave_counts_the_orders_it_tried() -> None:
    scene = "writer_whose_run_is_reaped and postgres"
    made = ["make", "-o", ".venv/.ready", "-o", "servers"]  # they are here, or this test would not run
    ended = subprocess.run(
        [*made, "interleave", "ORDERS=part", f'PYTEST_ARGS=-n0 -k "{scene}"'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "6  fence: run row: writer whose run is reaped: postgres-repeatable read" in ended.stdout
    assert "18  orders in 3 scenes" in ended.stdout


def test_bench_fence_prints_ratios_as_its_last_line_and_names_what_it_missed() -> None:
    few = ["--rounds", "1", "--seconds", "0.05", "--partition-rounds", "1", "--partition-seconds", "0.2"]
    few += ["--fence", "fence row", "--driver", "psycopg", "--partitions", "2"]
    ended = subprocess.run(
        [sys.executable, "bench/fence.py", "--json", *few], cwd=ROOT, capture_output=True, text=True, check=False
    )
    result = last_line(ended.stdout)
    assert result["ratio"] == result["ratios"]["fence row"]["psycopg"]["ratio"] > 0
    assert result["partitions_ratio"] == result["partitions"]["fence row"]["psycopg"]["ratio"] > 0
    assert (ended.returncode != 0) == bool(result["missed"])  # so short, what it measures says nothing
    assert all(each in ended.stderr for each in result["missed"])


def test_bench_web_measures_every_page_and_no_statement_reads_too_much() -> None:
    """Times are for a quiet machine and a long history; what is judged here is the program, and the rows it counts."""
    few = ["--runs", "5000", "--only", "sqlite", "--rounds", "1", "--no-tabs"]
    ended = subprocess.run(
        [sys.executable, "bench/web.py", "--json", *few], cwd=ROOT, capture_output=True, text=True, check=False
    )
    result = last_line(ended.stdout)
    figures = {each["what"]: each for each in result["figures"]}
    assert figures["rows admin /"]["value"] > 0
    assert all(each["is_kept"] for what, each in figures.items() if what.startswith("rows "))
    assert figures["first page"]["is_kept"]
    assert figures["p95 viewer /runs?q=state:dead"]["value"] > 0
    assert (ended.returncode != 0) == bool(result["missed"]), ended.stderr
