"""ZooKeeper from Debian's ``libzookeeper-java`` (3.8 in Debian 12), on whatever Java there is.

Ready in about 0.5 s, durable as shipped. Sessions may last from two ticks (0.4 s by default) to one minute; the server
ends them at the next tick boundary, so a short tick makes short sessions exact.
"""

import socket
from pathlib import Path
from typing import ClassVar

from testbed.server import Missing, Server, require_program

SERVER_JAR = Path("/usr/share/java/zookeeper.jar")
LOGGING_JAR = Path("/usr/share/java/slf4j-simple.jar")
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeper(Server):
    name: ClassVar[str] = "zookeeper"

    def __init__(self, *, tick_ms: int = 200, session_ms_max: int = 60_000) -> None:
        super().__init__()
        self.tick_ms = tick_ms
        self.session_ms_max = session_ms_max

    @property
    def url(self) -> str:
        return f"zookeeper://{self.host}:{self.port}"

    def prepare(self) -> None:
        settings = {
            "tickTime": self.tick_ms,
            "maxSessionTimeout": self.session_ms_max,
            "dataDir": self.directory / "data",
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.directory / "zoo.cfg").write_text(lines)

    def command(self) -> list[str]:
        classes = f"{self.directory}:{program()}:{LOGGING_JAR}"
        # Little heap and no optimising compiler: many instances, short lives.
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [str(require_program("java")), *options, "-cp", classes, MAIN_CLASS, str(self.directory / "zoo.cfg")]

    def answers(self) -> bool:
        return b"Mode: standalone" in self.ask("srvr")

    def ask(self, word: str) -> bytes:
        """The answer to one of ZooKeeper's four-letter words."""
        with socket.create_connection((self.host, self.port), timeout=2) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b""))


def program() -> Path:
    """The server's jar, if Java and all that it takes are there."""
    require_program("java")
    for jar in (SERVER_JAR, LOGGING_JAR):
        if not jar.exists():
            raise Missing(f"{jar} does not exist; try: python -m testbed.provision")
    return SERVER_JAR
