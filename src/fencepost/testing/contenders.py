"""Contenders for a lock that can be killed, stopped and continued.

They are processes if the store works across processes. For the memory store, they are threads whose waits can be
stopped.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from typing import Any, Protocol

from fencepost.testing.puppet import Answer, Puppet
from fencepost.testing.runtimes import StoppableRuntime


class Contender(Protocol):
    """Takes locks on command."""

    def send(self, command: str, **arguments: Any) -> None:
        """Send a command without waiting for its answer."""
        ...

    def hear(self, deadline_s: float = 60.0) -> Answer:
        """Wait for the answer."""
        ...

    def ask(self, command: str, **arguments: Any) -> Answer: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def cont(self) -> None: ...
    def end(self) -> None: ...


class ProcessContender:
    """A puppet in a process of its own."""

    def __init__(self, url: str, wall_offset_s: float = 0.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fencepost.testing.puppet", url, str(wall_offset_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._is_ready = False
        self._rest = b""

    def send(self, command: str, **arguments: Any) -> None:
        self._become_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, deadline_s: float = 60.0) -> Answer:
        answer: Answer = json.loads(self._line(deadline_s))
        return answer

    def ask(self, command: str, **arguments: Any) -> Answer:
        self.send(command, **arguments)
        return self.hear()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def _become_ready(self) -> None:
        if not self._is_ready:
            assert self.hear() == {"ready": True}
            self._is_ready = True

    def _line(self, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(deadline_s):
                    raise AssertionError(f"a contender did not answer within {deadline_s:g} s")
                if not (some := os.read(self._process.stdout.fileno(), 65536)):
                    raise AssertionError(f"a contender ended with {self._process.wait()} instead of answering")
                self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        return line


class ThreadContender:
    """A puppet on threads of this process."""

    def __init__(self, url: str, wall_offset_s: float = 0.0) -> None:
        self._runtime = _SkewedStoppable(wall_offset_s)
        self._puppet = Puppet(url, self._runtime)
        self._answers: list[Answer] = []
        self._answered = threading.Semaphore(0)

    def send(self, command: str, **arguments: Any) -> None:
        threading.Thread(target=self._do, args=(command, arguments), daemon=True).start()

    def hear(self, deadline_s: float = 60.0) -> Answer:
        if not self._answered.acquire(timeout=deadline_s):
            raise AssertionError(f"a contender did not answer within {deadline_s:g} s")
        return self._answers.pop(0)

    def ask(self, command: str, **arguments: Any) -> Answer:
        self.send(command, **arguments)
        return self.hear()

    def kill(self) -> None:
        self._runtime.stop()

    def stop(self) -> None:
        self._runtime.stop()

    def cont(self) -> None:
        self._runtime.cont()

    def end(self) -> None:
        self._runtime.cont()
        self._puppet.do("close")

    def _do(self, command: str, arguments: dict[str, Any]) -> None:
        self._answers.append(self._puppet.do(command, **arguments))
        self._answered.release()


class _SkewedStoppable(StoppableRuntime):
    def __init__(self, offset_s: float) -> None:
        super().__init__()
        self._offset_us = round(offset_s * 1_000_000)

    def wall_us(self) -> int:
        return super().wall_us() + self._offset_us
