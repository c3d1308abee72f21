"""Settings: which of three sources counts, and what is said of a bad one."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from fencepost import App
from fencepost.config import KINDS, Settings, read_settings
from fencepost.core.urls import absolute_url
from fencepost.errors import InvalidSetting
from fencepost.ledger.ledger import open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.ledger.urls import LedgerUrl


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(*, file: str | None = None, name: str = "fencepost.toml", env: Any = None, **arguments: Any) -> Settings:
        if file is not None:
            (tmp_path / name).write_text(file)
        return read_settings(arguments, environ=env or {}, directory=tmp_path)

    return read


def test_without_any_source_the_ledger_is_a_file_here(read: Any) -> None:
    settings = read()
    assert settings.url == "sqlite:///fencepost.db"
    assert settings.source_of("url") == "default"


def test_the_environment_outweighs_the_file_and_an_argument_outweighs_both(read: Any) -> None:
    file = 'ttl = "10s"\nslots = 1\ngeneration = 1'
    settings = read(file=file, env={"FENCEPOST_SLOTS": "2", "FENCEPOST_GENERATION": "2"}, generation=3)
    assert (settings.ttl_s, settings.slots, settings.generation) == (10.0, 2, 3)
    assert settings.source_of("ttl").endswith("fencepost.toml")
    assert settings.source_of("slots") == "FENCEPOST_SLOTS"
    assert settings.source_of("generation") == "App(generation=…)"


def test_the_table_of_pyproject_counts_where_there_is_no_file_of_our_own(read: Any) -> None:
    assert read(file="[tool.fencepost]\nslots = 7\n[tool.other]\nx = 1", name="pyproject.toml").slots == 7
    assert read(file="slots = 8").slots == 8


def test_a_pyproject_that_does_not_speak_of_us_is_no_source(read: Any) -> None:
    assert read(file="[project]\nname = 'x'", name="pyproject.toml") == Settings()


def test_a_file_can_be_named_by_a_variable_and_must_then_be_there(read: Any, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("slots = 3")
    assert read(env={"FENCEPOST_CONFIG": str(tmp_path / "other.toml")}).slots == 3
    with pytest.raises(InvalidSetting, match=r"nowhere\.toml: the settings cannot be read"):
        read(env={"FENCEPOST_CONFIG": str(tmp_path / "nowhere.toml")})


def test_an_empty_variable_counts_as_not_set(read: Any) -> None:
    assert read(env={"FENCEPOST_URL": "", "FENCEPOST_SLOTS": ""}) == Settings()


def test_queues_and_flags_are_written_as_words_in_the_environment(read: Any) -> None:
    settings = read(env={"FENCEPOST_QUEUES": "mail, default,mail", "FENCEPOST_LEADER": "yes"})
    assert settings.queues == ("mail", "default")
    assert settings.leader


def test_a_ttl_may_be_a_timedelta(read: Any) -> None:
    assert read(ttl=timedelta(seconds=6)).ttl_s == 6.0


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("FENCEPOST_TTL", "5 parsecs", "FENCEPOST_TTL: '5 parsecs' is not a valid duration; write it as"),
        ("FENCEPOST_TTL", "1ms", "FENCEPOST_TTL: ttl 1ms must be between"),
        ("FENCEPOST_SLOTS", "0", "FENCEPOST_SLOTS: '0' is not a whole number of at least 1"),
        ("FENCEPOST_SLOTS", "many", "FENCEPOST_SLOTS: 'many' is not a whole number"),
        ("FENCEPOST_GENERATION", "-1", "FENCEPOST_GENERATION: '-1' is not a whole number of at least 0"),
        ("FENCEPOST_QUEUES", ",", "FENCEPOST_QUEUES: name at least one queue"),
        ("FENCEPOST_QUEUES", "a b", "FENCEPOST_QUEUES: queue name 'a b'"),
        ("FENCEPOST_LEADER", "perhaps", "FENCEPOST_LEADER: 'perhaps' is neither true nor false"),
        ("FENCEPOST_URL", "postgres", "FENCEPOST_URL: write a URL as"),
    ],
)
def test_a_bad_value_is_refused_with_where_it_stands(read: Any, variable: str, value: str, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(env={variable: value})
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("quees = ['a']", "there is no setting 'quees'; did you mean 'queues'?"),
        ("ttl = 'x'", "ttl in "),
        ("ttl = [", "this is not valid TOML"),
        ("slots = true", "True is not a whole number"),
        ("url = 5", "a URL must be a text"),
        ("[jobs]\nsettle = 5", "[jobs.settle]"),
        ("[jobs.'not a name']\ntimeout = '1m'", "[jobs]: job name 'not a name'"),
    ],
)
def test_a_bad_file_is_refused_with_its_path_and_what_was_meant(read: Any, file: str, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(file=file)
    assert says in str(refused.value)
    assert "fencepost.toml" in str(refused.value)


def test_a_file_that_is_not_text_is_refused(read: Any, tmp_path: Path) -> None:
    (tmp_path / "fencepost.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match="not valid TOML"):
        read()


def test_the_settings_of_single_jobs_are_kept_for_them(read: Any) -> None:
    settings = read(file='[jobs.settle]\ntimeout = "10m"\n[jobs."a/b"]\nretries = 3')
    assert {name: dict(each) for name, each in settings.jobs.items()} == {
        "settle": {"timeout": "10m"},
        "a/b": {"retries": 3},
    }


def test_retention_is_a_table_of_durations(read: Any) -> None:
    retention = read(file='[retention]\nsucceeded = "7d"\ndead = "forever"').retention
    assert (retention.succeeded, retention.dead) == (7 * 86400.0, None)
    assert read(file="").retention == Settings().retention


@pytest.mark.parametrize(
    ("file", "says"), [("succeded = '7d'", "'succeded'"), ("dead = 'long'", "retention of dead 'long'")]
)
def test_a_bad_retention_is_refused_with_where_it_stands(read: Any, file: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match=r"fencepost\.toml: \[retention\]: .*") as refused:
        read(file=f"[retention]\n{file}")
    assert says in str(refused.value)


def test_no_password_is_shown_or_repeated(read: Any) -> None:
    settings = read(url="postgresql://me:s3cret@db/app", leases="redis://:s3cret@cache")
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings.shown())
    assert ("url", "postgresql://me:***@db/app", "App(url=…)") in settings.shown()
    with pytest.raises(InvalidSetting) as refused:
        read(env={"FENCEPOST_URL": "postgresql://me:s3/cret@db/app"})
    assert "cret" not in str(refused.value).replace("secret", "")


def test_every_setting_is_shown(read: Any) -> None:
    assert [name for name, _, _ in read().shown()] == list(KINDS)


@pytest.mark.parametrize("url", ["sqlite:///jobs.db", "sqlite:///file:jobs.db", "sqlite:///%6Aobs.db?prefix=x_"])
def test_the_file_of_an_application_stays_the_same_when_the_working_directory_changes(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    app = App(url, leases="sqlite:///locks.db")
    ledger = open_ledger(url, app.runtime)
    monkeypatch.chdir(tmp_path / "elsewhere")
    migrate(app.ledger)
    app._node_locks()
    with app.lock("nightly"):
        pass
    app.close()
    assert [each.name for each in app.operations.jobs()] == []
    assert ledger.url.path == tmp_path / "jobs.db"
    ledger.read(lambda cursor: ledger.rows(cursor, sqlalchemy.text("SELECT 1")))
    ledger.close()
    app.close()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    names = {each.name for each in tmp_path.glob("*.db")}
    assert names == {"jobs.db", "jobs.leases.db", "locks.leases.db"}


@pytest.mark.parametrize(
    "url",
    ["postgresql://db/app", "mysql://db/app?x=1", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///a#b.db",
     "sqlite://host/app.db", "redis://cache"],
)  # fmt: skip
def test_only_files_are_resolved(url: str) -> None:
    assert absolute_url(url) == url


def test_url_through_a_link_and_back_names_the_same_file_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    monkeypatch.chdir(tmp_path)
    url = "sqlite:///link/../y.db"
    assert LedgerUrl.parse(absolute_url(url)).path == LedgerUrl.parse(url).path == tmp_path / "real" / "y.db"


def test_a_resolved_url_names_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    resolved = absolute_url("sqlite:///a%3Fb and c.db?prefix=x_")
    assert absolute_url(resolved) == resolved
    assert (LedgerUrl.parse(resolved).path, LedgerUrl.parse(resolved).prefix) == (tmp_path / "a?b and c.db", "x_")
