"""The recipe for object stores, against a real one that speaks S3."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, FlexibleChecksumError, HTTPClientError

from examples import object_store
from examples.object_store import publish_fenced, put_fenced, read, read_published, refuse_unless_conditional
from fencepost.core.fencing import FencingToken
from fencepost.errors import LeaseLost, TransactionConflict, UnsafeStore
from fencepost.threaded import ThreadedRuntime
from testbed.proxy import Proxy
from testbed.s3 import S3
from testbed.wait import until

RUNTIME = ThreadedRuntime()
ROOT = Path(__file__).parent.parent.parent


def token(number: int, grant_id: str | None = None) -> FencingToken:
    return FencingToken("job:report", number, grant_id or f"grant-{number}", f"node-{number}")


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with S3() as running:
        yield running


@pytest.fixture(scope="module")
def s3(server: S3) -> Any:
    return server.client()


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"b{RUNTIME.new_id()[:12]}"
    s3.create_bucket(Bucket=name)
    return name


def test_a_stale_writer_is_refused_and_the_object_stays(s3: Any, bucket: str) -> None:
    put_fenced(s3, bucket, "a", {"total": 1}, token(7))
    put_fenced(s3, bucket, "a", {"total": 2}, token(8))
    before = read(s3, bucket, "a")
    for stale in (token(7), token(8, "another")):
        with pytest.raises(LeaseLost, match="nothing was written"):
            put_fenced(s3, bucket, "a", {"total": 0}, stale)
    assert read(s3, bucket, "a")[:2] == before[:2]
    assert before.document["total"] == 2
    put_fenced(s3, bucket, "a", {"total": 3}, token(8))
    assert read(s3, bucket, "a").document["total"] == 3


def test_a_token_from_the_future_does_not_close_the_fence(s3: Any, bucket: str) -> None:
    with pytest.raises(LeaseLost, match="a day ahead"):
        put_fenced(s3, bucket, "a", {}, token(RUNTIME.wall_us() + 25 * 3600 * 1_000_000))
    assert read(s3, bucket, "a").etag is None


@pytest.mark.parametrize("exists", [False, True])
def test_a_writer_overtaken_between_reading_and_writing_is_refused(
    s3: Any, bucket: str, exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exists:
        put_fenced(s3, bucket, "a", {"by": 6}, token(6))
    original, overtaken = object_store._put, []

    def late(*arguments: Any) -> bool:
        if not overtaken:
            overtaken.append(True)
            put_fenced(s3, bucket, "a", {"by": 8}, token(8))
        return original(*arguments)

    monkeypatch.setattr(object_store, "_put", late)
    with pytest.raises(LeaseLost, match="token 8"):
        put_fenced(s3, bucket, "a", {"by": 7}, token(7))
    assert read(s3, bucket, "a").document["by"] == 8


def test_with_the_token_in_the_metadata_alone_equal_contents_let_a_stale_writer_in(s3: Any, bucket: str) -> None:
    """Why the recipe puts it into the content: the ETag does not know of the metadata."""

    def put(content: bytes, number: int, **condition: str) -> str:
        answer = s3.put_object(Bucket=bucket, Key="a", Body=content, Metadata={"token": str(number)}, **condition)
        return str(answer["ETag"])

    seen_by_7 = put(b"unchanged", 6)
    put(b"unchanged", 8, IfMatch=seen_by_7)  # the newer holder publishes the same content again
    put(b"stale", 7, IfMatch=seen_by_7)  # and the older one still gets in
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"stale"


def test_with_the_token_in_the_content_equal_documents_keep_a_stale_writer_out(
    s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_fenced(s3, bucket, "a", {"same": 1}, token(6))
    etag_seen_by_7 = read(s3, bucket, "a").etag
    put_fenced(s3, bucket, "a", {"same": 1}, token(8))
    assert not object_store._put(s3, bucket, "a", {"stale": 1}, etag_seen_by_7)


@pytest.mark.parametrize("overtaking", [7, 9])
def test_content_that_is_newer_than_its_etag_costs_another_turn_and_lets_nobody_in(
    s3: Any, bucket: str, overtaking: int
) -> None:
    """As a store does that reads both at different moments."""
    put_fenced(s3, bucket, "a", {"by": 6}, token(6))
    turns: list[int] = []

    class Torn:
        def __getattr__(self, name: str) -> Any:
            return getattr(s3, name)

        def get_object(self, **options: Any) -> Any:
            if not turns:
                put_fenced(s3, bucket, "a", {"by": overtaking}, token(overtaking))
            turns.append(1)
            return s3.get_object(**options)

    with contextlib.suppress(LeaseLost):
        put_fenced(Torn(), bucket, "a", {"by": 8}, token(8))
    assert read(s3, bucket, "a").document["by"] == max(8, overtaking)
    assert len(turns) == (2 if overtaking < 8 else 1)


def test_of_many_who_create_at_once_one_does(server: S3, bucket: str) -> None:
    barrier, created = threading.Barrier(8), []

    def create(number: int) -> None:
        client = server.client()
        barrier.wait(20)
        if object_store._put(client, bucket, "new", {"by": number}, None):
            created.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(created) == 1
    assert read(server.client(), bucket, "new").document["by"] == created[0]


def test_of_many_who_write_at_once_the_newest_stays_and_tokens_never_fall(server: S3, bucket: str) -> None:
    done = threading.Event()
    tokens: list[int] = []

    def write(number: int) -> None:
        client = server.client()
        try:
            for turn in range(5):
                until(lambda turn=turn: is_put(client, turn, number), 60)
        except LeaseLost:
            pass

    def is_put(client: Any, turn: int, number: int) -> bool:
        with contextlib.suppress(TransactionConflict):  # on a busy machine others are quicker, ten times in a row
            put_fenced(client, bucket, "a", {"turn": turn}, token(number))
            return True
        return False

    def watch() -> None:
        client = server.client()
        while not done.is_set():
            with contextlib.suppress(FlexibleChecksumError):  # replaced while it was read, and not to be believed
                if mark := read(client, bucket, "a").mark:
                    tokens.append(mark.token)

    writers = [threading.Thread(target=write, args=(number,)) for number in (2, 4, 1, 3)]
    watcher = threading.Thread(target=watch)
    watcher.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    watcher.join(30)
    assert read(server.client(), bucket, "a").document["fence"]["token"] == 4
    assert tokens == sorted(tokens)


def test_a_write_whose_answer_was_lost_finds_its_own_effect(server: S3, s3: Any, bucket: str) -> None:
    put_fenced(s3, bucket, "a", {"total": 1}, token(7))
    etag = read(s3, bucket, "a").etag
    with Proxy(server.host, server.port) as proxy:
        import boto3
        from botocore.config import Config

        far = boto3.client(
            "s3",
            endpoint_url=f"http://{proxy.host}:{proxy.port}",
            region_name="us-east-1",
            aws_access_key_id="testbed",
            aws_secret_access_key="testbed-secret",
            config=Config(retries={"total_max_attempts": 1}, read_timeout=1),
        )
        proxy.swallow_replies()
        with pytest.raises(HTTPClientError):
            object_store._put(far, bucket, "a", {"total": 2, "fence": _fence(8)}, etag)
    written = read(s3, bucket, "a")
    assert written.document["total"] == 2
    put_fenced(s3, bucket, "a", {"total": 2}, token(8))
    assert read(s3, bucket, "a").etag == written.etag


def _fence(number: int) -> dict[str, Any]:
    return {"token": number, "grant": f"grant-{number}", "holder": f"node-{number}"}


def test_large_objects_are_published_whole(s3: Any, bucket: str) -> None:
    publish_fenced(s3, bucket, "report", b"old" * 100_000, token(7))
    publish_fenced(s3, bucket, "report", b"new" * 100_000, token(8))
    with pytest.raises(LeaseLost):
        publish_fenced(s3, bucket, "report", b"stale" * 100_000, token(7))
    assert read_published(s3, bucket, "report") == b"new" * 100_000


def test_a_store_that_ignores_conditions_is_found_out(s3: Any, bucket: str) -> None:
    refuse_unless_conditional(s3, bucket)

    class Ignorant:
        def __getattr__(self, name: str) -> Any:
            return getattr(s3, name)

        def put_object(self, **options: Any) -> Any:
            return s3.put_object(**{name: value for name, value in options.items() if not name.startswith("If")})

    with pytest.raises(UnsafeStore, match="ignores If-Match"):
        refuse_unless_conditional(Ignorant(), bucket)


def test_other_refusals_are_not_taken_for_changes(s3: Any) -> None:
    with pytest.raises(ClientError, match="NoSuchBucket"):
        put_fenced(s3, "nowhere-to-be-found", "a", {}, token(7))


def test_the_example_runs_by_itself(server: S3) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "examples/object_store.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "refused" in done.stdout
