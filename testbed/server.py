"""What all servers of the testbed have in common: a process on a free loopback port with a folder of its own.

A concrete server says how it is started (``command``), how its folder is made ready the first time (``prepare``) and
how to find out that it truly answers (``answers``). States: not started, running, paused, ended (by ``stop``, ``kill``
or by itself), closed. A server that ended keeps its folder and its port for ``restart``; ``close`` gives up both.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from testbed import keeper, wait

HOST = "127.0.0.1"
LOG_TAIL_LINES = 30


class ServerFailed(RuntimeError):
    """The server did not come up; the message holds the end of its log."""


class Missing(RuntimeError):
    """The server's program is not on this machine; the message says how to get it."""


class Server(ABC):
    """One server process."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_deadline_s: ClassVar[float] = 30.0
    stop_deadline_s: ClassVar[float] = 10.0

    def __init__(self) -> None:
        self.host = HOST
        self.port = free_port()
        self.directory = keeper.make_directory(self.name)
        self.log = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._is_prepared = False

    # --- what a concrete server says of itself

    @property
    @abstractmethod
    def url(self) -> str:
        """The store URL under which Fencepost finds this server."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether a real request gets a real answer now. An exception counts as no."""

    def prepare(self) -> None:  # noqa: B027
        """Make the folder ready, once, before the first start."""

    def environment(self) -> Mapping[str, str]:
        """Variables to add to the server's environment."""
        return {}

    def started(self) -> None:  # noqa: B027
        """Called each time the server has come to answer."""

    # --- what can be done with it

    def start(self) -> Self:
        """Start and wait until the server truly answers."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start without waiting: for servers that answer only when their peers are there as well."""
        if self.is_running:
            raise ServerFailed(f"{self.name} on port {self.port} is running already")
        if not self._is_prepared:
            self.prepare()
            self._is_prepared = True
        self._process = self._spawn(self.command(), self.environment())

    def wait_until_ready(self) -> None:
        try:
            wait.until(self._answers_or_ended, self.start_deadline_s, ignoring=(Exception,))
        except TimeoutError as error:
            self.kill()
            raise self._failed(f"gave no answer in {self.start_deadline_s:g} s ({error.__cause__!r})") from error
        if not self.is_running:
            raise self._failed(f"ended while starting, with status {self._status()}")
        self.started()

    def stop(self) -> None:
        """End gracefully; by SIGKILL if the server takes too long. Does nothing if it has ended already."""
        if self._process is None:
            return
        if self.is_running:
            self.resume()
            self._process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self.stop_deadline_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the server and all its processes at once, and return when they are gone."""
        if self._process is None:
            return
        keeper.kill_tree(self._process.pid)
        self._process.wait()
        keeper.forget(self._process.pid)
        self._process = None

    def restart(self) -> Self:
        """Start again on the same data and the same port; stops first if still running."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, the kernel still accepts some, nothing answers."""
        if self._process is not None:
            keeper.freeze_tree(self._process.pid)

    def resume(self) -> None:
        if self._process is not None:
            keeper.signal_tree(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill the server and remove its folder."""
        self.kill()
        keeper.remove_directory(self.directory)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    # --- for concrete servers

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a program to its end, such as one that fills the data folder; its output goes to the log."""
        process = self._spawn([str(part) for part in command], {})
        status = process.wait()
        keeper.forget(process.pid)
        if status:
            raise self._failed(f"could not be set up: {command[0]} ended with status {status}")

    def _spawn(self, command: list[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                keeper.announced(command),
                stdin=keeper.pipe(),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **variables},
                start_new_session=True,
            )

    def _answers_or_ended(self) -> bool:
        return not self.is_running or self.answers()

    def _status(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"{self.name} on port {self.port} {what}; the end of its log:\n{self.log_tail()}")


class Group:
    """Several servers that only make sense together; started side by side, ended together."""

    def __init__(self, *members: Server) -> None:
        self.members = members

    def start(self) -> Self:
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_ready()
        return self

    def stop(self) -> None:
        for member in reversed(self.members):
            member.stop()

    def kill(self) -> None:
        for member in reversed(self.members):
            member.kill()

    def close(self) -> None:
        for member in reversed(self.members):
            member.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def free_port() -> int:
    """A loopback port that is free, and is given to no other caller for the next minute.

    A connection made and closed leaves the port in TIME_WAIT: the kernel then gives it to no one who asks for just any
    port, while a server that asks for this one with SO_REUSEADDR, as all servers do, gets it. Without that, tests that
    run side by side now and then get each other's port.
    """
    with socket.create_server((HOST, 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address), listener.accept()[0]:
            pass
    port: int = address[1]
    return port


def find_program(*names: str, folders: Sequence[str] = ("/usr/sbin", "/usr/local/sbin", "/sbin")) -> Path | None:
    """The first of these programs that exists on the PATH or where Debian keeps daemons."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])
    for name in names:
        if found := shutil.which(name, path=path):
            return Path(found)
    return None


def require_program(*names: str) -> Path:
    if found := find_program(*names):
        return found
    raise Missing(f"{' or '.join(names)} is not installed; try: python -m testbed.provision")


def not_as_root() -> list[str]:
    """A command prefix for servers that refuse to run as root: it makes root look like nobody.

    A user namespace rather than another user, so that the files stay ours; with an IPC namespace of its own, so that
    the shared memory of a killed server vanishes with it.
    """
    if os.geteuid() != 0:
        return []
    return ["unshare", "--user", "--ipc", "--map-user=65534", "--map-group=65534"]
