"""A lock holder that executes commands, in a thread or in a process at the end of a pipe.

Run as a program (``python -m fencepost.testing.puppet URL [wall offset in s]``), it reads one JSON command per line and
replies to each with one JSON line. A test can then kill or stop the whole process.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from fencepost.core.grants import AlreadyDone, Held
from fencepost.errors import FencepostError
from fencepost.leases.lease import Lease
from fencepost.leases.locks import Locks
from fencepost.leases.schemes import store_from_url
from fencepost.testing.runtimes import SkewedRuntime
from fencepost.threaded import ThreadedRuntime

Answer = dict[str, Any]


class Puppet:
    """Takes locks on command."""

    def __init__(self, url: str, runtime: ThreadedRuntime) -> None:
        self._locks = Locks(store_from_url(url, runtime), runtime=runtime)
        self._locks.start()
        self._runtime = runtime
        self._leases: dict[str, Lease] = {}

    def do(self, command: str, **arguments: Any) -> Answer:
        """Execute one command. An expected error is returned as an answer too."""
        try:
            answer: Answer = getattr(self, f"do_{command}")(**arguments)
        except FencepostError as error:
            return {"error": type(error).__name__, "message": str(error)}
        return answer

    def do_lock(self, name: str, **wishes: Any) -> Answer:
        """Take a lock and keep it."""
        outcome = self._locks.lock(name, **wishes).attempt()
        if isinstance(outcome, Held):
            return {"held_by": outcome.holder, "token": outcome.token}
        if isinstance(outcome, AlreadyDone):
            return {"already_done": outcome.last_tick_us}
        self._leases[name] = outcome
        return {"token": outcome.token, "holder": outcome.holder, "at": self._runtime.monotonic()}

    def do_state(self, name: str) -> Answer:
        """Return what the holder itself believes, without a call to the store."""
        lease = self._leases[name]
        return {"lost": lease.lost, "reason": lease.lost_reason}

    def do_check(self, name: str) -> Answer:
        """Check the lease at the store."""
        self._leases[name].check()
        return {"ok": True}

    def do_release(self, name: str) -> Answer:
        return {"released": self._leases[name].release()}

    def do_race(self, name: str, counter: str, rounds: int, ttl: float) -> Answer:
        """Append to a file by reading and rewriting it, `rounds` times. Only the lock prevents lost updates."""
        tokens = []
        file = Path(counter)
        for _ in range(rounds):
            with self._locks.lock(name, ttl=ttl, wait=60) as lease:
                seen = file.read_text()
                self._runtime.sleep(0)  # let another thread or process run
                file.write_text(f"{seen}{lease.token}\n")
                tokens.append(lease.token)
        return {"tokens": tokens}

    def do_fork(self, name: str, ttl: float) -> Answer:
        """Fork while holding a lock. The child has lost it, and can take another one on its own connections."""
        with self._locks.lock(name, ttl=ttl) as lease:
            reader, writer = os.pipe()
            with warnings.catch_warnings():  # Python 3.12 warns of forks with threads, which is what is tested here
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                os.write(writer, json.dumps(self._in_child(lease, ttl)).encode())
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                answer: Answer = json.loads(pipe.read())
            os.waitpid(child, 0)
            lease.check()
            return answer | {"parent_holds": not lease.lost, "parent": lease.holder}

    def do_close(self) -> Answer:
        """Release everything and close the store."""
        self._locks.close()
        return {}

    def _in_child(self, inherited: Lease, ttl: float) -> Answer:
        try:
            with self._locks.lock(f"{inherited.name}/child", ttl=ttl) as own:
                own.check()
                return {"inherited_is_lost": inherited.lost, "own_token": own.token, "child": own.holder}
        except Exception as error:  # noqa: BLE001 - returned to the test, which fails
            return {"error": repr(error)}


def main() -> None:
    """Execute commands from standard input."""
    url, offset_s = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    puppet = Puppet(url, SkewedRuntime(offset_s))
    _say({"ready": True})
    for line in sys.stdin:
        _say(puppet.do(**json.loads(line)))


def _say(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
