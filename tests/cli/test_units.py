"""Durations and ages on the command line need their unit: a plain number would be seconds, in silence."""

import shutil

import pytest

from fencepost.app.composing import publish
from fencepost.errors import InvalidDuration, InvalidParameters, InvalidSchedule
from fencepost.web.editing import read_edit
from fencepost.web.finding import read_instant
from tests.cli.inside import call, shop
from tests.web.test_finding import NOW

ADVICE = "has no unit: write 24s, 24m, 24h or 24d"
TYPED = {
    "--since": "runs --since 24",
    "--until": "runs --until 24",
    "--for": "pause --all --for 24 --reason x",
    "--for of a schedule": "schedules pause nightly --for 24",
    "--for of an acknowledgement": "acknowledge given-up x --for 24",
    "--for of the demo": "demo --web --for 24",
    "--expires-in": "api-tokens add ci viewer --expires-in 24",
    "--delay": "trigger add --delay 24",
    "--from": "backfill add --from 24 --to now",
    "--before": "audit prune --before 24 --reason x",
    "--older-than": "effects prune sqlite:///{folder}/effects.db --older-than 24",
    "--grace": "run tests.cli.shop:app --grace 24",
    "--ttl": "run tests.cli.shop:app --ttl 24",
    "--gap": "chaos --gap 24",
    "--wait": "exec --store sqlite:///x.db --lock a --wait 24 -- true",
    "--at-least": "exec --store sqlite:///x.db --lock a --at-least 24 -- true",
    "every": "schedules preview 'every 24'",
}


@pytest.fixture(scope="module")
def ledger(migrated_file, tmp_path_factory):
    url = f"sqlite:///{shutil.copy(migrated_file, tmp_path_factory.mktemp('units'))}"
    app = shop(url)
    publish(app)
    app.close()
    return url


@pytest.mark.parametrize("case", TYPED)
def test_number_without_a_unit_is_refused_with_what_to_write(case, tmp_path, monkeypatch, ledger):
    monkeypatch.chdir(tmp_path)
    words = TYPED[case].format(folder=tmp_path).replace("'every 24'", "every_24").split()
    done = call(*(word.replace("_", " ") for word in words), ledger=ledger)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{case.partition(' ')[0]} '24' {ADVICE}" in done.stderr


def test_what_is_no_duration_is_refused_under_the_name_of_its_option(ledger):
    done = call("api-tokens", "add", "ci", "viewer", "--expires-in", "2y", ledger=ledger)
    assert done.returncode == 2
    assert "--expires-in '2y' is not a valid duration; write it as 30s" in done.stderr
    assert "number of seconds" not in done.stderr


def test_pages_ask_for_a_unit_as_well():
    with pytest.raises(InvalidParameters, match=ADVICE):
        read_instant("24", now=NOW, what="since")
    with pytest.raises(InvalidDuration, match=ADVICE):
        read_edit({"when": "every 24"})
    with pytest.raises(InvalidSchedule):
        read_edit({"when": ""})


def test_day_without_dashes_is_a_day(ledger):
    assert call("runs", "--since", "20260329", "--tz", "UTC", ledger=ledger).returncode == 0


ENDS = {
    "--since": "runs --since {}",
    "--until": "runs --until {}",
    "--since of figures": "figures --since {}",
    "--since of the journal": "journal --since {}",
    "--at": "why nightly --at {}",
    "--from": "backfill add --from {} --to now --dry-run",
    "--before": "audit prune --before {} --reason x",
}
FAR = ("800000d", "3000000d", "99999999d", "9" * 39 + "d", "0001-01-01T00:00+23:00", "9999-12-31T23:59-23:00")


@pytest.mark.parametrize("case", ENDS)
def test_time_beyond_the_calendar_is_refused_in_one_sentence(case, ledger):
    for far in FAR:
        done = call(*(word.format(far) for word in ENDS[case].split()), ledger=ledger)
        assert (done.returncode, done.stdout) == (2, ""), (far, done)
        assert f"{case.partition(' ')[0]} '{far}' is outside the calendar, which runs from 1970 to 2199" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_delay_beyond_the_calendar_is_refused_in_one_sentence(ledger):
    for delay in ("3000000d", "9" * 39 + "d"):
        done = call("trigger", "add", "--delay", delay, ledger=ledger)
        assert done.returncode == 2
        assert "from now is outside the calendar" in done.stderr


def test_pages_refuse_times_beyond_the_calendar_as_well():
    for far in FAR:
        with pytest.raises(InvalidParameters, match="is outside the calendar, which runs from 1970 to 2199"):
            read_instant(far, now=NOW, what="since")
