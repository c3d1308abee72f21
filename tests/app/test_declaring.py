"""What @app.job makes of a function."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from fencepost import App, at, cron, every
from fencepost.app.declaring import PolicyWords
from fencepost.config import KINDS
from fencepost.core.duration import spelled
from fencepost.core.policy import BatchType, Policy
from fencepost.errors import ConfigurationError, InvalidJob, InvalidPolicy, InvalidSchedule, InvalidSetting
from fencepost.ledger.pruning import Retention


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/app.db")


def test_making_an_application_touches_nothing(tmp_path: Path, app: App) -> None:
    @app.job(every("1s"))
    def tick() -> None: ...

    assert list(tmp_path.iterdir()) == []


def test_a_decorated_function_is_called_as_before(app: App) -> None:
    @app.job(every("1h"))
    def add(a: int = 1, *, b: int = 2) -> int:
        """Add."""
        return a + b

    assert add(3, b=4) == 7
    assert (add.__name__, add.__doc__, add.name) == ("add", "Add.", "add")
    assert add.job is app.jobs["add"]
    assert list(inspect.signature(add).parameters) == ["a", "b"]


def test_a_function_that_wants_the_run_is_given_one_by_whoever_calls_it(app: App) -> None:
    @app.job
    def settle(run: Any) -> Any:
        return run

    assert settle("a run of the test's own") == "a run of the test's own"


def test_a_coroutine_stays_one(app: App) -> None:
    @app.job
    async def fetch() -> int:
        return 3

    assert asyncio.run(fetch()) == 3
    assert fetch.job.kind == "async"


def test_without_a_schedule_a_job_is_manual_and_with_one_scheduled(app: App) -> None:
    @app.job
    def bare() -> None: ...

    @app.job()
    def called() -> None: ...

    @app.job(None)
    def none() -> None: ...

    @app.job(every("1h"))
    def hourly() -> None: ...

    @app.job(every("1h"), type="bulk")
    def bulky() -> None: ...

    assert [str(job.policy.type) for job in app.jobs.values()] == ["manual"] * 3 + ["scheduled", "bulk"]


def test_policies_are_written_as_words(app: App) -> None:
    @app.job(cron("0 3 * * *"), at("2030-01-01T00:00Z"), timeout="10m", retries=4, misfire="skip", queue="mail")
    def settle() -> None: ...

    policy = settle.job.policy
    assert (policy.timeout_s, policy.retries, policy.misfire, policy.queue) == (600.0, 4, "skip", "mail")
    assert [each.id for each in settle.job.schedules] == ["settle", "settle:2"]


def test_a_misspelt_word_brings_the_nearest(app: App) -> None:
    with pytest.raises(InvalidPolicy, match=r"did you mean 'timeout'\?"):
        app.job(timeuot="10m")(lambda: None)  # type: ignore[call-overload]


@pytest.mark.parametrize("words", [{"timeout": "soon"}, {"retries": -1}, {"queue": "a b"}, {"type": "nightly"}])
def test_a_bad_policy_names_its_job(app: App, words: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^job 'settle': "):

        @app.job(**words)
        def settle() -> None: ...


@pytest.mark.parametrize("given", ["*/5 * * * *", 5, [every("1h")]])
def test_what_is_no_schedule_is_refused(app: App, given: Any) -> None:
    with pytest.raises(InvalidSchedule, match="schedule"):
        app.job(given)


def test_a_text_is_refused_with_what_was_meant(app: App) -> None:
    with pytest.raises(InvalidSchedule, match=r"write cron\('\*/5 \* \* \* \*'\)"):
        app.job("*/5 * * * *")  # type: ignore[call-overload]


def test_a_name_twice_is_refused_with_both_places(app: App) -> None:
    app.job(name="settle")(lambda: None)
    with pytest.raises(InvalidJob, match=r"two jobs named 'settle'.*test_declaring\.py:\d+.*test_declaring\.py:\d+"):
        app.job(name="settle")(lambda: None)


def test_one_function_may_be_two_jobs(app: App) -> None:
    def report(size: str = "small") -> str:
        return size

    daily = app.job(every("1d"), name="daily", params={"size": "large"})(report)
    hourly = app.job(every("1h"), name="hourly")(daily)
    assert (daily.name, hourly.name) == ("daily", "hourly")
    assert hourly.job.function is report


def test_a_program_can_be_a_job(app: App) -> None:
    handle = app.command("report", ["./report.sh", "--daily"], cron("0 6 * * *"), timeout="20m")
    job = app.jobs["report"]
    assert (handle.name, job.kind, job.argv) == ("report", "command", ("./report.sh", "--daily"))
    assert job.policy.timeout_s == 1200


def test_the_settings_file_outweighs_the_code_for_single_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fencepost.toml").write_text('[jobs.settle]\ntimeout = "10m"\ntype = "bulk"')
    monkeypatch.chdir(tmp_path)
    app = App()

    @app.job(every("1h"), timeout="1m", retries=7)
    def settle() -> None: ...

    policy = settle.job.policy
    assert (policy.timeout_s, policy.retries, policy.type) == (600.0, 7, "bulk")


def test_a_bad_word_in_the_settings_of_a_job_is_refused_with_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fencepost.toml").write_text('[jobs.settle]\ntimeout = "soon"')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSetting, match=r"\[jobs\.settle\] in the settings file: timeout 'soon'"):
        App().job(name="settle")(lambda: None)


def test_settings_of_a_job_that_there_is_not_are_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fencepost.toml").write_text('[jobs.setle]\ntimeout = "1m"')
    monkeypatch.chdir(tmp_path)
    app = App()
    app.job(name="settle")(lambda: None)
    with pytest.raises(InvalidSetting, match=r"no job 'setle'; did you mean 'settle'\?"):
        app.start()


def test_the_page_about_jobs_names_every_word_and_setting_and_the_defaults_of_the_types() -> None:
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
    for word in (*PolicyWords.__annotations__, *KINDS, *Retention.__slots__):
        assert re.search(rf"\b{word}\b", page), word
    rows = {row[0].strip(" `"): [cell.strip() for cell in row[1:6]] for row in _table_rows(page)}
    types = rows[""]
    for number, batch_type in enumerate(types):
        policy = Policy.of(batch_type)
        assert rows["timeout"][number] == spelled(policy.timeout_s)
        assert rows["retries"][number] == str(policy.retries)
        assert rows["backoff"][number] == f"{spelled(policy.backoff.base_s)}..{spelled(policy.backoff.cap_s)}"
        assert rows["isolation"][number] == policy.isolation
        assert rows["chunk"][number] == str(policy.chunk)
    assert types == list(map(str, BatchType))


def _table_rows(page: str) -> list[list[str]]:
    """Return the cells of the tables with six columns."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return [row for row in rows if len(row) == 6]


def test_showing_an_application_shows_no_password() -> None:
    assert "s3cret" not in repr(App("postgresql://me:s3cret@db/app"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("*/5 * * * *", "not a schedule; write cron('*/5 * * * *')"),
        ("5m", "not a schedule; write every('5m')"),
        ("every 5m", "not a schedule; write every('5m')"),
        ("often", "not a schedule; there are cron(…), every(…) and at(…)"),
    ],
)
def test_a_text_in_place_of_a_schedule_is_answered_with_the_call_that_fits(app: App, text: str, says: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        app.job(text)  # type: ignore[call-overload]
    assert str(caught.value).endswith(says)
