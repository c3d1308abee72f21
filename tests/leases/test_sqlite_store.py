"""SQLite as a lease store: what the contract suite does not ask of every store."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from fencepost.core import mounts
from fencepost.core.grants import Grant, Held, Lost, Renewed
from fencepost.errors import InvalidUrl, StoreRefused, StoreUnavailable, UnsafeStore
from fencepost.leases.schemes import store_from_url
from fencepost.leases.stores import sqlite as sqlite_store
from fencepost.leases.stores.sql import sqlite_backend
from fencepost.leases.stores.sql.store import SqlLeaseStore
from fencepost.leases.urls import StoreUrl
from fencepost.testing import Stopwatch
from fencepost.threaded import ThreadedRuntime
from testbed import wait
from tests.leases.sql_contract import Deaths, Records, RoundTrips, Run
from tests.leases.sql_store import RUNTIME, expired, opened, started, taken


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/app.db"


@pytest.fixture
def store(url: str) -> Iterator[SqlLeaseStore]:
    with started(url) as store:
        yield store


@pytest.fixture(name="run")
def run_fixture(url: str) -> Run:
    def run(sql: str, *parameters: Any) -> list[Any]:
        with (
            closing(sqlite3.connect(sqlite_store.lease_file(StoreUrl.parse(url)), timeout=5)) as connection,
            connection,
        ):
            return connection.execute(sql.replace("%s", "?"), parameters).fetchall()

    return run


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/{RUNTIME.new_id()[:8]}"


class TestRoundTrips(RoundTrips):
    pass


class TestDeath(Deaths):
    pass


class TestRecords(Records):
    pass


class TestPlace:
    @pytest.mark.parametrize(
        ("url", "file"),
        [
            ("sqlite:////var/lib/app.db", "/var/lib/app.leases.db"),
            ("sqlite:////var/lib/app", "/var/lib/app.leases"),
            ("sqlite:///here/app.sqlite3", f"{os.getcwd()}/here/app.leases.sqlite3"),
            ("sqlite:////a%20b/c.d.db", "/a b/c.d.leases.db"),
            ("sqlite:///file:/var/lib/app.db", "/var/lib/app.leases.db"),
            ("sqlite:///file:///var/lib/app.db", "/var/lib/app.leases.db"),
        ],
    )
    def test_leases_live_beside_the_database(self, url: str, file: str) -> None:
        assert sqlite_store.lease_file(StoreUrl.parse(url)) == Path(file)

    @pytest.mark.parametrize(
        ("url", "hint"),
        [
            ("sqlite://", "memory://"),
            ("sqlite:///:memory:", "memory://"),
            ("sqlite://app.db", "three slashes"),
            ("sqlite:////tmp/", "folder"),
            ("sqlite:///app.db?journal=off", "journal"),
        ],
    )
    def test_url_that_names_no_file_is_refused_with_a_hint(self, url: str, hint: str) -> None:
        with pytest.raises(InvalidUrl, match=hint):
            store_from_url(url, RUNTIME)

    def test_a_link_to_the_database_leads_to_the_same_leases(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "link.db").symlink_to(tmp_path / "data" / "app.db")
        (tmp_path / "folder").symlink_to(tmp_path / "data")
        with started(f"sqlite:///{tmp_path}/data/app.db") as real, started(f"sqlite:///{tmp_path}/link.db") as link:
            taken(real, opened(real), name)
            assert isinstance(link.acquire(opened(link), name, grant_id="other"), Held)
            with started(f"sqlite:///{tmp_path}/folder/app.db") as folder:
                assert isinstance(folder.acquire(opened(folder), name, grant_id="third"), Held)

    def test_a_database_that_is_mounted_without_its_folder_is_a_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = tmp_path / "mountinfo"
        table.write_text(f"1 0 0:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:1 /x {tmp_path}/app.db rw - ext4 /dev/sda1 rw\n")
        monkeypatch.setattr(sqlite_backend, "_MOUNTINFO", table)
        store = store_from_url(f"sqlite:///{tmp_path}/app.db", RUNTIME)
        assert any("app.db is mounted alone" in warning for warning in store.start())
        store.shutdown()

    def test_missing_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StoreRefused, match="does not exist; create it first"):
            store_from_url(f"sqlite:///{tmp_path}/no/app.db", RUNTIME).start()

    def test_folder_in_place_of_the_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "app.leases.db").mkdir()
        with pytest.raises(StoreRefused, match="cannot be opened"):
            store_from_url(f"sqlite:///{tmp_path}/app.db", RUNTIME).start()

    def test_file_that_is_no_database_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "app.leases.db").write_text("a shopping list, longer than the header of a database" * 10)
        with pytest.raises(StoreRefused, match="move it away"):
            store_from_url(f"sqlite:///{tmp_path}/app.db", RUNTIME).start()

    def test_the_applications_own_file_is_not_touched(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as application:
            application.execute("BEGIN EXCLUSIVE")  # as long as it likes
            with started(f"sqlite:///{tmp_path}/app.db?call_timeout=1s") as store:
                session = opened(store)
                grant = taken(store, session, "a")
                assert store.renew(session, [grant]) == Renewed()
                assert store.release(grant)

    def test_many_processes_may_create_the_file_at_once(self, tmp_path: Path) -> None:
        errors: list[Exception] = []
        barrier = threading.Barrier(8)

        def start() -> None:
            barrier.wait()
            try:
                with started(f"sqlite:///{tmp_path}/app.db") as store:
                    opened(store)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                errors.append(error)

        threads = [threading.Thread(target=start) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /mnt/nas rw,relatime shared:9 - nfs4 nas:/export rw,vers=4.2
31 22 0:26 / /mnt/nas/local rw - xfs /dev/sdb1 rw
32 22 0:27 / /mnt/with\\040space rw - cifs //srv/share rw
33 22 0:28 / /home/me/remote rw - fuse.sshfs me@host: rw
34 22 0:29 / /home/me/appimage ro - fuse.squashfuse image ro
35 22 0:30 / /over rw - tmpfs tmpfs rw
36 22 0:31 / /over rw - 9p host rw
a line that makes no sense
"""


class TestFileSystems:
    @pytest.mark.parametrize(
        ("path", "file_system", "is_network"),
        [
            ("/var/lib/app.db", "ext4", False),
            ("/mnt/nas/app.db", "nfs4", True),
            ("/mnt/nasty/app.db", "ext4", False),
            ("/mnt/nas/local/app.db", "xfs", False),
            ("/mnt/with space/app.db", "cifs", True),
            ("/home/me/remote/x/app.db", "fuse.sshfs", True),
            ("/home/me/appimage/app.db", "fuse.squashfuse", False),
            ("/over/app.db", "9p", True),
        ],
    )
    def test_the_longest_and_last_mount_counts(self, path: str, file_system: str, is_network: bool) -> None:
        found = mounts.file_system_of(PurePosixPath(path), MOUNTINFO)
        assert found == file_system
        assert mounts.is_network(found) is is_network

    def test_nothing_known_is_nothing_refused(self) -> None:
        assert not mounts.is_network(mounts.file_system_of(PurePosixPath("/a"), ""))

    def test_network_is_refused_unless_accepted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        told = tmp_path / "mountinfo"
        told.write_text(f"30 22 0:25 / {tmp_path} rw - nfs4 nas:/export rw\n")
        monkeypatch.setattr(sqlite_backend, "_MOUNTINFO", told)
        with pytest.raises(UnsafeStore, match="network file system") as refusal:
            store_from_url(f"sqlite:///{tmp_path}/app.db", RUNTIME).start()
        assert refusal.value.risk == "network-filesystem"
        [warning] = store_from_url(f"sqlite:///{tmp_path}/app.db?accept_risk=network-filesystem", RUNTIME).start()
        assert "nfs4" in warning


class OtherBoot(ThreadedRuntime):
    """The same machine after a reboot: its monotonic clock began anew."""

    def boot_id(self) -> str:
        return "another boot"

    def monotonic(self) -> float:
        return super().monotonic() % 7.0


class TestClocks:
    def test_reboot_frees_everything_and_tokens_rise(self, tmp_path: Path, name: str) -> None:
        url = f"sqlite:///{tmp_path}/app.db"
        with started(url) as before:
            session = opened(before, "before")
            held, kept = taken(before, session, name), taken(before, session, f"{name}/kept")
            assert before.release(kept, keep_for_s=3600)
        after = store_from_url(url, OtherBoot())
        assert isinstance(after, SqlLeaseStore)
        after.start()
        heir = opened(after, "after")
        assert taken(after, heir, name).token > held.token
        assert taken(after, heir, kept.name).token > kept.token
        assert [past.why for past in after.history(name, limit=5)] == ["expired"]
        assert isinstance(after.renew(session, [held]), Lost)
        after.shutdown()


class TestTrouble:
    def test_file_deleted_by_hand_ends_sessions_and_comes_back(self, tmp_path: Path, name: str) -> None:
        with started(f"sqlite:///{tmp_path}/app.db") as store:
            session = opened(store)
            old = taken(store, session, name)
            assert store.renew(session, [old]) == Renewed()
            for file in tmp_path.glob("app.leases.db*"):
                file.unlink()
            assert isinstance(store.renew(session, [old]), Lost)
            assert taken(store, opened(store), name).token > old.token

    def test_busy_file_ends_calls_in_time(self, tmp_path: Path, name: str) -> None:
        with started(f"sqlite:///{tmp_path}/app.db?call_timeout=400ms") as store:
            session = store.open("me", ttl_s=60, call_timeout_s=0.2)
            grant = taken(store, session, name)
            with closing(sqlite3.connect(tmp_path / "app.leases.db", isolation_level=None)) as writer:
                writer.execute("BEGIN IMMEDIATE")
                for limit_s, call in (
                    (0.2, lambda: store.renew(session, [grant])),
                    (0.4, lambda: store.release(grant)),
                    (0.4, lambda: store.acquire(session, f"{name}/2", grant_id="x")),
                ):
                    with Stopwatch() as took, pytest.raises(StoreUnavailable, match="did not answer within"):
                        call()
                    assert took.awake_s < limit_s + 0.4
                assert store.read(name) is not None  # reading never waits
                writer.execute("ROLLBACK")
            assert store.release(grant)

    def test_waiting_ends_soon_after_release(self, store: SqlLeaseStore, name: str) -> None:
        session = opened(store)
        grant = taken(store, session, name)
        held = store.acquire(session, name, grant_id="x")
        assert isinstance(held, Held)
        threading.Timer(0.1, lambda: store.release(grant)).start()
        began = time.monotonic()
        store.wait_change(held, 30)
        assert 0.05 < time.monotonic() - began < 10


class TestFork:
    def test_child_that_outlives_its_parent_still_writes_where_others_read(self, tmp_path: Path, name: str) -> None:
        """The child needs locks of its own on the file: else the last one out clears the log away under it."""
        url = f"sqlite:///{tmp_path}/app.db"
        go, end = tmp_path / "go", tmp_path / "end"
        told, tell = os.pipe()
        if (parent := os.fork()) == 0:
            with started(url) as store:
                taken(store, opened(store, "parent"), f"{name}/parent")
                if os.fork() == 0:
                    try:
                        store.forget_connections()
                        session = opened(store, "child")
                        taken(store, session, f"{name}/early")
                        os.write(tell, b"1")
                        wait.until(go.exists, 20)
                        taken(store, session, f"{name}/late")
                        os.write(tell, b"2")
                        wait.until(end.exists, 20)
                    finally:
                        os.write(tell, b"0")  # so that nobody waits for a child that failed
                        os._exit(0)
                os.read(told, 1)
            os._exit(0)  # after its connections were closed in good order
        assert os.waitpid(parent, 0)[1] == 0
        with started(url) as other:
            go.touch()
            assert os.read(told, 1) == b"2"
            for lock in ("early", "late"):
                refusal = other.acquire(opened(other), f"{name}/{lock}", grant_id="x")
                assert isinstance(refusal, Held), lock
                assert refusal.holder == "child"
        end.touch()
        os.close(told)
        os.close(tell)

    def test_child_forked_in_the_middle_of_a_call_is_told_so(self, store: SqlLeaseStore) -> None:
        connection, _ = store._calls.pool.take(RUNTIME.monotonic() + 1)
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            store.forget_connections()
            try:
                store.read("anything")
            except StoreUnavailable as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        store._calls.pool.give(connection)  # what is in use, all children of this process would be refused for
        assert b"forked in the middle" in os.read(reading, 1000)
        os.close(reading)
        os.close(writing)


def test_crashed_writer_leaves_nothing_half_done(url: str, store: SqlLeaseStore, name: str) -> None:
    """A process is killed inside a burial: session gone, leases not yet freed, nothing committed."""
    grant = expired(store, name)
    if (pid := os.fork()) == 0:
        try:
            child = store_from_url(url, RUNTIME)
            connection = child._calls.pool.take(RUNTIME.monotonic() + 1)[0]  # type: ignore[attr-defined]
            connection.begin()
            connection.change(store._sql.bury, (grant.session.id,))
            os.kill(os.getpid(), 9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    heir = opened(store)
    new = wait.until(lambda: store.acquire(heir, name, grant_id="x"))
    assert isinstance(new, Grant)
    assert [past.why for past in store.history(name, limit=5)] == ["expired"]


_TRY = """
import sys
from fencepost.leases.schemes import store_from_url
from fencepost.threaded import ThreadedRuntime
store = store_from_url(sys.argv[1], ThreadedRuntime())
store.start()
session = store.open("other", ttl_s=60, call_timeout_s=5)
print(type(store.acquire(session, sys.argv[2], grant_id="x")).__name__)
"""


class TestTimeNamespaces:
    def test_a_process_in_another_time_namespace_sees_who_holds_it(self, tmp_path: Path, name: str) -> None:
        unshared = ["unshare", "--time", "--boottime", "100000", "--fork"]
        may_be_left_out = os.environ.get("FENCEPOST_TEST_ALL") != "1"
        if may_be_left_out and (
            shutil.which("unshare") is None or subprocess.run([*unshared, "true"], check=False).returncode
        ):
            pytest.skip("this kernel, or this user, makes no time namespaces")
        url = f"sqlite:///{tmp_path}/app.db"
        with started(url) as store:
            session = store.open("me", ttl_s=60, call_timeout_s=5)
            grant = taken(store, session, name)
            command = [*unshared, sys.executable, "-c", _TRY, url, name]
            told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
            assert told.stdout.strip() == "Held", told.stderr
            assert store.renew(session, [grant]) == Renewed()

    def test_a_process_that_only_its_children_follow_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spaces = (tmp_path / "time", tmp_path / "time_for_children")
        for each in spaces:
            each.write_text("")
        monkeypatch.setattr(sqlite_backend, "_TIME_NAMESPACES", spaces)
        with pytest.raises(StoreRefused, match="unshared its time namespace"):
            store_from_url(f"sqlite:///{tmp_path}/app.db", RUNTIME).start()
