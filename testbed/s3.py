"""An object store that speaks S3: Versity's gateway on a folder, built from Go modules, once, into the cache.

It takes about two minutes on two cores. This version compares and writes in one step, which is what it is here for; in
older ones two writers with the same condition could both succeed. Objects are files, so they survive a restart.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from testbed import cache, golang
from testbed.server import Missing, Server

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
ACCESS, SECRET = "testbed", "testbed-secret"


class S3(Server):
    name: ClassVar[str] = "s3"

    def __init__(self) -> None:
        super().__init__()
        self.program = program()
        _need_attributes(self.directory)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def prepare(self) -> None:
        (self.directory / "objects").mkdir()

    def environment(self) -> "Mapping[str, str]":
        return {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}

    def command(self) -> list[str]:
        return [str(self.program), "--port", self.address, "posix", str(self.directory / "objects")]

    def answers(self) -> bool:
        self.client().list_buckets()
        return True

    def client(self) -> Any:
        """A client that fails rather than tries again."""
        import boto3
        from botocore.config import Config

        settings = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10)
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=settings,
        )


def path() -> Path:
    """Where the built program is or will be."""
    return cache.directory() / f"versitygw-{VERSION}"


def program() -> Path:
    if not path().exists():
        raise Missing(golang.not_built(path()))
    return path()


def _need_attributes(folder: Path) -> None:
    """ETags are attributes of the files: kept beside them, they would change at another moment than the content."""
    try:
        os.setxattr(folder, "user.fencepost", b"")
    except OSError as error:
        raise Missing(f"{folder} lies on a file system without extended attributes; set TMPDIR") from error


def build() -> Path:
    """Build the program unless it is there; wait if another process is building it."""
    with golang.lock(path()):
        if not path().exists():
            make()
    return path()


def make() -> None:
    """Build the program. The caller has the lock."""
    with tempfile.TemporaryDirectory(prefix="build-", dir=path().parent) as name:
        folder = Path(name)
        go = str(golang.program())
        (folder / "go.mod").write_text("module testbed\n")
        golang.run([go, "get", f"{MODULE}@{VERSION}"], folder)
        options = ["-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", "versitygw"]
        golang.run([go, "build", *options, MODULE], folder)
        (folder / "versitygw").rename(path())
