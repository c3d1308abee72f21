"""What ``--json`` printed before records had one place is still there, with the same names and values."""

import dataclasses

import pytest

from fencepost.app import records
from fencepost.cli.documents import FORMER_NAMES, document
from fencepost.core.grants import LeaseRecord, PastGrant

NODE = (
    "id name state running slots queues jobs generation version token started_at draining_at left_at dead_at dead_why"
)
JOURNAL = "id at what job run schedule node node_name token by reason detail"
LETTER = "id job step instance run state key item shown error_code error attempt created_at can_be_replayed database"
SCHEDULE = "id job when spec params origin generation next_due_at planned_through paused_at paused_by pause_reason"
PRINTED = {
    "BulkAgainRecord": "run again",
    "BulkForgottenRecord": "run instance checkpoints written",
    "BulkRecord": "run job instance steps",
    "BulkStepRecord": "name state done_by other_code counts partitions",
    "ClockChangeRecord": "at kind local_before local_after offset_before_s offset_after_s around left_off",
    "CountsRecord": "read written filtered skipped chunks",
    "DecisionRecord": "copy skipped runs paused",
    "MomentRecord": "due_at local note",
    "OutlookRecord": "schedule when tz dst disagreements year next changes",
    "PartitionRecord": "number slice position done counts run run_state",
    "RenamedJobRecord": "name formerly schedules runs checkpoints letters",
    "StandingRecord": "held changed id noted present why",
    "AttemptRecord": "number outcome node node_name token started_at ended_at took_s error_code error trace",
    "DueRecord": "schedule due_at window",
    "JobRecord": "name type doc policy strategy signature generation seen_at nodes renamed_to",
    "JournalRecord": JOURNAL,
    "LetterRecord": LETTER,
    "LockRecord": "name held holder token grant since free_in_s last_tick",
    "NodeRecord": f"{NODE} longest_pause_s",
    "PartRecord": "run key state progress_note",
    "PastLockRecord": "name holder token from until why",
    "ScheduleRecord": f"{SCHEDULE} no_node_since created_at updated_at",
    "WhyRecord": "job schedule at became sentence run nearest",
}


@pytest.mark.parametrize("name", PRINTED)
def test_every_field_is_printed_under_the_name_that_it_had(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(getattr(records, name))}
    former = FORMER_NAMES.get(name, {})
    assert set(former.values()) <= fields
    assert set(PRINTED[name].split()) <= fields | set(former)
    assert not set(former) & fields


def test_both_names_have_one_value() -> None:
    at_us = 1_767_225_600_000_000
    lock = document(records.LockRecord.of(LeaseRecord("nightly", 7, "here", "g", "s", at_us, 3.5, at_us)))
    assert (lock["since"], lock["grant"], lock["last_tick"]) == ("2026-01-01T00:00:00Z", "g", "2026-01-01T00:00:00Z")
    assert (lock["acquired_at"], lock["grant_id"], lock["last_tick_at"]) == (lock["since"], "g", lock["last_tick"])
    past = document(records.PastLockRecord.of(PastGrant("nightly", "here", 7, at_us, at_us + 5, "released")))
    assert (past["from"], past["until"]) == (past["acquired_at"], past["ended_at"])


def test_records_within_a_record_have_their_former_names_too() -> None:
    part = records.PartitionRecord(0, {"first": 1}, [9], True, None, 7, "succeeded")
    step = records.BulkStepRecord("main", "done", 7, False, records.CountsRecord(1, 1, 0, 0, 1), (part,))
    shown = document(records.BulkRecord(7, "settle", "succeeded", "x", (step,)))
    [partition] = shown["steps"][0]["partitions"]
    assert (shown["run"], partition["run"], partition["run_id"]) == (7, 7, 7)
    assert shown["steps"][0]["counts"]["read"] == 1
