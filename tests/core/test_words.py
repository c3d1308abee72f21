"""The words of options: what type checkers let through is what is taken, and nothing is missing."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args, get_type_hints

import pytest

from fencepost.app.declaring import PolicyWords
from fencepost.bulk.definition import Options
from fencepost.core import words
from fencepost.core.misfire import Misfire
from fencepost.core.policy import BatchType, Effects, Isolation, OnCrash, Overlap, Policy
from fencepost.core.schedule import cron
from fencepost.core.schedules.zones import DST
from fencepost.errors import InvalidBulk, InvalidPolicy, InvalidSchedule

CHOICES = [
    ("type", words.TypeWord, BatchType),
    ("overlap", words.OverlapWord, Overlap),
    ("on_crash", words.OnCrashWord, OnCrash),
    ("effects", words.EffectsWord, Effects),
    ("isolation", words.IsolationWord, Isolation),
]


@pytest.mark.parametrize(("name", "literal", "kind"), CHOICES, ids=[name for name, *_ in CHOICES])
def test_the_words_of_a_policy_are_those_of_its_signature(name: str, literal: Any, kind: type[StrEnum]) -> None:
    assert {getattr(Policy.of(**{name: word}), name) for word in get_args(literal)} == set(kind)
    with pytest.raises(InvalidPolicy, match="unknown"):
        Policy.of(**{name: "sometimes"})


def test_job_asks_for_these_words() -> None:
    hints = get_type_hints(PolicyWords)
    assert {name: hints[name] for name, *_ in CHOICES if name != "type"} == {
        name: literal | None for name, literal, _ in CHOICES if name != "type"
    }
    assert hints["misfire"] == words.MisfireWord | None


@pytest.mark.parametrize("word", ["Forbid", " QUEUE ", "rePlace"])
def test_capitals_and_spaces_do_not_matter_at_run_time(word: str) -> None:
    assert Policy.of(overlap=word).overlap == word.strip().lower()


def test_a_batch_type_may_be_written_with_spaces_or_underscores() -> None:
    assert {Policy.of(word).type for word in ("near real time", "near_real_time", "Near-Real-Time")} == {
        BatchType.NEAR_REAL_TIME
    }


def test_misfire_takes_its_kinds_and_a_cap() -> None:
    assert {Misfire.of(kind).kind for kind in get_args(words.MisfireKind)} == set(get_args(words.MisfireKind))
    assert Misfire.of("all:10").cap == 10
    for wrong in ("once:3", "some", "all:none"):
        with pytest.raises(InvalidPolicy):
            Misfire.of(wrong)


def test_dst_takes_its_words_and_each_means_something() -> None:
    assert {cron("30 2 * * *", dst=word).dst for word in get_args(words.DstWord)} == {"auto", *DST}
    with pytest.raises(InvalidSchedule, match="there are auto, first, second, both, skip, real"):
        cron("30 2 * * *", dst="thrice")  # type: ignore[arg-type]


def test_partitions_are_over_nodes_or_threads() -> None:
    assert {Options.of(chunk=1, words={"over": word}).over for word in get_args(words.OverWord)} == {"nodes", "threads"}
    with pytest.raises(InvalidBulk, match="over 'planets' must be 'nodes'"):
        Options.of(chunk=1, words={"over": "planets"})
