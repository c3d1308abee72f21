"""Fencing an object store: a report that is replaced only by writers whose token is not older than the last.

An object store has no transactions, but it has conditional writes: `If-None-Match: *` creates an object only if there
is none, `If-Match` replaces it only if it still has the ETag that was read. With the token inside the object, that is a
fence: read, compare, write on the condition that nothing has changed since.

The token has to be part of the *content*. On S3 the ETag is a digest of the content alone, so with the token in the
object's metadata a newer holder that writes the same content again leaves the ETag as it was, and an older one that had
read before still gets in. (Azure and Google give every write another ETag or generation; there, metadata would do.)

So what is fenced here is a small JSON document. A large or opaque object is written under a name of its own first, and
the document then points to it: readers see the old one or the new one, whole.

Run it with ``.venv/bin/python examples/object_store.py``. It starts an object store by itself; with S3_URL (and the
usual AWS_… variables) it uses yours.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import boto3
from botocore.exceptions import ClientError, FlexibleChecksumError

from fencepost import LeaseLost, locks
from fencepost.errors import TransactionConflict, UnsafeStore
from fencepost.fences import Claimant, Mark, fencing_of, refusal

CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404", "409", "412")
TRIES = 10


# -- the recipe --------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A document as it was read. Without an ETag there is none yet. `now_us` is the store's clock."""

    document: dict[str, Any]
    etag: str | None
    now_us: int

    @property
    def mark(self) -> Mark | None:
        fence = self.document.get("fence")
        return Mark(int(fence["token"]), fence["grant"], fence["holder"]) if fence else None


def put_fenced(s3: Any, bucket: str, key: str, document: dict[str, Any], claimant: Claimant) -> None:
    """Replace a JSON document, or raise `LeaseLost` and leave it. May be repeated: it then finds its own effect."""
    offered = fencing_of(claimant)
    fence = {"token": offered.token, "grant": offered.grant_id, "holder": offered.holder}
    wanted = {**document, "fence": fence}
    for _ in range(TRIES):
        try:
            seen = read(s3, bucket, key)
        except FlexibleChecksumError:  # it was replaced while it was read
            continue
        why = refusal(seen.mark, offered, now_us=seen.now_us)
        if why is not None:
            raise LeaseLost(offered.key, offered.token, f"s3://{bucket}/{key}: {why}; nothing was written")
        if seen.document == wanted:
            return
        if _put(s3, bucket, key, wanted, seen.etag):
            return
    raise TransactionConflict(f"s3://{bucket}/{key} changed {TRIES} times while it was to be replaced; try again")


def publish_fenced(s3: Any, bucket: str, key: str, body: bytes, claimant: Claimant) -> None:
    """Write an object of any size under a name of its own, then let the document at `key` point to it."""
    offered = fencing_of(claimant)
    digest = hashlib.sha256(body).hexdigest()
    name = f"{key}.objects/{offered.token}-{digest[:16]}"
    s3.put_object(Bucket=bucket, Key=name, Body=body)  # nobody reads it yet, so it needs no fence
    put_fenced(s3, bucket, key, {"object": name, "sha256": digest}, claimant)


def read(s3: Any, bucket: str, key: str) -> Seen:
    """Read the ETag first: should the content be newer than that, the condition fails, and nothing is lost.

    Amazon returns both as of one moment; not every store that speaks S3 does, while an object is being replaced.
    """
    try:
        etag = s3.head_object(Bucket=bucket, Key=key)["ETag"]
        answer = s3.get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("NoSuchKey", "404"):
            raise
        return Seen({}, None, _clock(error.response))
    return Seen(json.loads(answer["Body"].read()), etag, _clock(answer))


def read_published(s3: Any, bucket: str, key: str) -> bytes:
    body: bytes = s3.get_object(Bucket=bucket, Key=read(s3, bucket, key).document["object"])["Body"].read()
    return body


def refuse_unless_conditional(s3: Any, bucket: str, key: str = "fencepost-probe") -> None:
    """Try it once at the start: some stores that speak S3 accept the conditions and ignore them."""
    s3.put_object(Bucket=bucket, Key=key, Body=b"first")
    is_safe = not _put(s3, bucket, key, {}, None) and not _put(s3, bucket, key, {}, '"0123456789abcdef"')
    s3.delete_object(Bucket=bucket, Key=key)
    if not is_safe:
        raise UnsafeStore("unconditional", f"bucket {bucket!r}: the store ignores If-Match or If-None-Match")


def _put(s3: Any, bucket: str, key: str, document: dict[str, Any], etag: str | None) -> bool:
    """Write if nothing has changed since; False if something has."""
    condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
    body = json.dumps(document, sort_keys=True).encode()
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json", **condition)
    except ClientError as error:
        if error.response["Error"]["Code"] not in CHANGED:
            raise
        return False
    return True


def _clock(answer: dict[str, Any]) -> int:
    sent = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    return int(parsedate_to_datetime(sent).timestamp() * 1_000_000)


# -- the story ---------------------------------------------------------------------------------------------------------


def main() -> int:
    with object_store() as s3, locks.connect("memory://") as store:
        bucket, key = "reports", "daily.csv"
        s3.create_bucket(Bucket=bucket)
        refuse_unless_conditional(s3, bucket)

        with store.lock("daily report") as first:
            publish_fenced(s3, bucket, key, b"day,total\n1,100\n", first)
            shown = first.fencing
            print(f"  the first holder (token {first.token}) has published, and is paused from here on")
        with store.lock("daily report") as second:
            publish_fenced(s3, bucket, key, b"day,total\n1,100\n2,250\n", second)
            print(f"  the second holder (token {second.token}) has published")
        try:
            publish_fenced(s3, bucket, key, b"day,total\n1,100\n", shown)
        except LeaseLost as lost:
            print(f"  the first one wakes up and is refused: {lost.reason}")
        else:
            print("  the first one wakes up and WRITES")
        left = read_published(s3, bucket, key)
        print(f"  what readers see: {left.decode().splitlines()}")
        return 0 if b"2,250" in left else 1


@contextmanager
def object_store() -> Iterator[Any]:
    if url := os.environ.get("S3_URL"):
        yield boto3.client("s3", endpoint_url=url)
        return
    from testbed import s3 as testbed_s3

    testbed_s3.build()
    with testbed_s3.S3() as server:
        yield server.client()


if __name__ == "__main__":
    sys.exit(main())
