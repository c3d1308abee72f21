"""Three instances of one application, each with a scheduler of its own, and nothing of Fencepost but its locks.

Every second all three want to run the same settlement. One does. Then the node at work is killed with -9 in the middle
of a settlement, and later another is paused for longer than its lease lasts. Run it with
``.venv/bin/python examples/own_scheduler.py``; DEMO_SECONDS bounds it.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fencepost import LeaseLost, LockHeld, StoreUnavailable, TickDone, locks

TTL = "3s"
WORK_S = 0.25
SECONDS = max(12.0, float(os.environ.get("DEMO_SECONDS", "20")))


# -- one instance of the application -----------------------------------------------------------------------------------


def node(name: str, url: str, effects: Path, first_due: datetime, last_due: datetime) -> None:
    """Run every due time from the first to the last, in order, if nobody else has."""
    logging.getLogger("fencepost").setLevel(logging.CRITICAL)
    store = locks.connect(url, holder=name)
    due = first_due
    while due <= last_due:
        time.sleep(max((due - datetime.now(UTC)).total_seconds(), 0))
        try:
            settle(store, name, effects, due)
        except TickDone:
            pass  # the normal course: another instance has done it
        except LeaseLost as loss:
            say(name, due, "woke up", f"lost its lease, wrote nothing: {loss.reason.split(':')[0]}")
            continue  # is it done? The store knows: if another instance has done it, this raises TickDone
        except (LockHeld, StoreUnavailable):
            continue  # somebody is at it for long, or nobody knows whether it was done: ask again
        due += timedelta(seconds=1)
    store.close()


def settle(store: locks.Locks, name: str, effects: Path, due: datetime) -> None:
    """The job. `tick=due` makes lock and de-duplication one step; `wait` lets others stand in for one that died."""
    with store.lock("settlement", ttl=TTL, wait="10s", tick=due) as lease:
        say(name, due, "started", f"token {lease.token}")
        time.sleep(WORK_S)
        lease.check()  # raises LeaseLost if another has taken over
        with effects.open("a") as file:
            file.write(f"{due:%H:%M:%S} {lease.token} {name}\n")
        say(name, due, "settled", f"token {lease.token}")


def say(name: str, due: datetime, what: str, more: str) -> None:
    print(f"{name} {due:%H:%M:%S} {what.replace(' ', '_')} {more}", flush=True)


# -- the audience ------------------------------------------------------------------------------------------------------


class Stage:
    """Starts the nodes, watches what they say, and does them harm."""

    def __init__(self, folder: Path) -> None:
        self.effects = folder / "effects.txt"
        self.effects.touch()
        self.first_due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
        self.last_due = self.first_due + timedelta(seconds=SECONDS - 8)
        arguments = [f"sqlite:///{folder}/demo.db", str(self.effects), *map(str, (self.first_due, self.last_due))]
        self.nodes = {
            name: subprocess.Popen(
                [sys.executable, __file__, "--node", name, *arguments], stdout=subprocess.PIPE, text=True
            )
            for name in ("node-1", "node-2", "node-3")
        }
        self.kill_after = self.first_due + (self.last_due - self.first_due) / 4
        self.pause_after = self.first_due + (self.last_due - self.first_due) / 2
        self.killed = self.paused = ""
        self.resume_at = float("inf")

    def play(self) -> None:
        """Show every line as it comes, until all nodes have ended."""
        with selectors.DefaultSelector() as selector:
            for process in self.nodes.values():
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(timeout=0.1):
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    if line:
                        self.hear(line.split(maxsplit=3))
                    else:
                        selector.unregister(key.fileobj)
                self.maybe_resume()

    def hear(self, said: list[str]) -> None:
        name, due, what, more = said
        print(f"  due {due}  {name}  {what.replace('_', ' '):8} {more.strip()}", flush=True)
        if what == "started":
            self.maybe_harm(name)

    def maybe_harm(self, name: str) -> None:
        """In the middle of a settlement: first kill one node, later pause another for longer than its lease."""
        now = datetime.now(UTC)
        if not self.killed and now > self.kill_after:
            self.killed = name
            print(f"\n  ✗ kill -9 {name}, in the middle of its work; its lease runs out in {TTL}\n", flush=True)
            self.nodes[name].kill()
        elif not self.paused and now > self.pause_after:
            self.paused = name
            print(f"\n  ‖ kill -STOP {name}, in the middle of its work, for 5 s\n", flush=True)
            self.nodes[name].send_signal(signal.SIGSTOP)
            self.resume_at = time.monotonic() + 5

    def maybe_resume(self) -> None:
        if time.monotonic() >= self.resume_at:
            self.resume_at = float("inf")
            print(f"\n  ▶ kill -CONT {self.paused}\n", flush=True)
            self.nodes[self.paused].send_signal(signal.SIGCONT)

    def end(self) -> None:
        for process in self.nodes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def verdict(self) -> int:
        """Compare what was due with what was written."""
        rows = [line.split() for line in self.effects.read_text().splitlines()]
        due = int((self.last_due - self.first_due).total_seconds()) + 1
        settled = [row[0] for row in rows]
        tokens = [int(row[1]) for row in rows]
        duplicates, missed = len(settled) - len(set(settled)), due - len(set(settled))
        print(f"\n  due {due} · settled {len(set(settled))} · twice {duplicates} · missed {missed}", end=" · ")
        print(f"tokens {'rose with every holder' if tokens == sorted(set(tokens)) else 'DID NOT RISE'}")
        return 0 if not duplicates and not missed and tokens == sorted(set(tokens)) else 1


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        print(f"Three nodes on SQLite, one settlement due every second, ttl {TTL}.\n")
        try:
            stage.play()
        except KeyboardInterrupt:
            print("\n  stopped")
            return 130
        finally:
            stage.end()
        return stage.verdict()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--node"]:
        _, _, name, url, effects, first, last = sys.argv
        try:
            node(name, url, Path(effects), datetime.fromisoformat(first), datetime.fromisoformat(last))
        except KeyboardInterrupt:
            sys.exit(130)
    else:
        sys.exit(main())
