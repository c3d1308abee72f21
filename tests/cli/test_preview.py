"""``fencepost schedules preview``: both changes of the clock, as the policy says."""

from pathlib import Path

import pytest

from fencepost.app.composing import publish
from tests.cli.inside import call, shop


def preview(*words: str) -> dict:
    [outlook] = call("schedules", "preview", *words, "--json").json
    return outlook


def test_both_changes_of_the_year_are_shown_as_the_policy_says() -> None:
    outlook = preview("30 2 * * *", "--tz", "Europe/Berlin", "--year", "2026")
    assert (outlook["tz"], outlook["dst"], outlook["year"]) == ("Europe/Berlin", "first", 2026)
    spring, autumn = outlook["changes"]
    assert (spring["kind"], spring["at"]) == ("gap", "2026-03-29T01:00:00Z")
    assert (spring["local_before"], spring["local_after"]) == ("2026-03-29T02:00:00", "2026-03-29T03:00:00")
    assert [each for each in spring["around"] if each["note"]] == [
        {"due_at": None, "local": "2026-03-29T02:30:00", "note": "never comes; due after the gap"},
        {"due_at": "2026-03-29T01:00:00Z", "local": "2026-03-29T03:00:00+02:00", "note": "after the gap"},
    ]
    assert (autumn["kind"], autumn["at"]) == ("fold", "2026-10-25T01:00:00Z")
    assert [each for each in autumn["around"] if each["note"]] == [
        {"due_at": "2026-10-25T00:30:00Z", "local": "2026-10-25T02:30:00+02:00", "note": "first of two"},
        {"due_at": None, "local": "2026-10-25T02:30:00+01:00", "note": "second of two, left out"},
    ]


def test_the_text_says_the_same() -> None:
    text = call("schedules", "preview", "30 2 * * *", "--tz", "Europe/Berlin", "--year", "2026").stdout
    assert "Sunday 2026-03-29: the clocks of Europe/Berlin go from 02:00 to 03:00; 1h is left out" in text
    assert "Sunday 2026-10-25: the clocks of Europe/Berlin go from 03:00 to 02:00; 1h comes twice" in text
    assert "never comes; due after the gap" in text


@pytest.mark.parametrize(("dst", "notes"), [("skip", "left out"), ("both", "second of two"), ("real", "left out")])
def test_another_policy_is_followed(dst: str, notes: str) -> None:
    outlook = preview("30 2 * * *", "--tz", "America/Santiago", "--dst", dst, "--year", "2026")
    assert outlook["dst"] == dst
    text = call("schedules", "preview", "30 0 * * *", "--tz", "America/Santiago", "--dst", dst, "--year", "2026").stdout
    assert notes in text or dst == "both"


def test_where_dialects_disagree_the_preview_says_so() -> None:
    [sentence] = preview("0 0 */2 * MON")["disagreements"]
    assert "in croniter and in Kubernetes either is enough" in sentence
    assert sentence in call("schedules", "preview", "0 0 */2 * MON").stdout
    assert preview("0 0 * * MON")["disagreements"] == []


def test_an_interval_is_real_time() -> None:
    outlook = preview("every 30m", "--tz", "Europe/Berlin", "--year", "2026")
    assert outlook["dst"] is None
    [spring, autumn] = outlook["changes"]
    assert [each["note"] for each in autumn["around"]].count("second of two") == 2
    assert all(each["due_at"] for each in spring["around"])


def test_a_zone_without_changes_says_so() -> None:
    assert preview("0 9 * * *", "--tz", "Asia/Seoul")["changes"] == []
    assert "not changed in 2026" in call("schedules", "preview", "@daily", "--year", "2026").stdout


def test_the_number_of_due_times_can_be_chosen() -> None:
    due = [each["due_at"] for each in preview("* * * * *", "--count", "7")["next"]]
    assert len(due) == 7
    assert due == sorted(set(due))


def test_a_schedule_of_the_ledger_is_named_by_its_id_or_its_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    app = shop(url)
    publish(app)
    app.close()
    [outlook] = call("schedules", "preview", "settle", "--year", "2026", "--json", ledger=url).json
    assert (outlook["schedule"], outlook["when"]) == ("settle", "cron 0 3 * * * in Europe/Berlin")
    assert len(outlook["changes"]) == 2


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("evry 5m", "is neither a schedule, a job, nor a cron expression; did you mean 'every 5m'?"),
        ("5m", "is neither a schedule, a job, nor a cron expression; for an interval write 'every 5m'"),
        ("xyzzy", "is neither a schedule, a job, nor a cron expression"),
        ("add", "has no schedule: it runs on request only"),
    ],
)
def test_what_has_no_due_times_is_answered_with_what_may_be_meant(tmp_path: Path, what: str, says: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    app = shop(url)
    publish(app)
    app.close()
    done = call("schedules", "preview", what, ledger=url)
    assert done.stderr.rstrip().endswith(f"{what!r} {says}"), done.stderr
