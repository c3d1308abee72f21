"""Histories as lines of JSON, one file for each process: what was written stays, even if the writer is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fencepost.core.runtime import Runtime
from fencepost.proof.history import Entry, EntryKind, History


class Recorder:
    """Writes entries to a file, each with a single call of the kernel; from any thread."""

    def __init__(self, path: Path, runtime: Runtime, *, node: str) -> None:
        self.node = node
        self._runtime = runtime
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._numbers = runtime.lock()
        self._calls = 0

    def note(self, what: str, *, node: str | None = None, **more: Any) -> None:
        """Record an entry that is not a call."""
        self._write(EntryKind.NOTE, what, 0, node, more)

    def invoke(self, what: str, **more: Any) -> int:
        """Record the beginning of a call, and return its number."""
        with self._numbers:
            self._calls += 1
            call = self._calls
        self._write(EntryKind.INVOKE, what, call, None, more)
        return call

    def end(self, call: int, kind: EntryKind, what: str, **more: Any) -> None:
        """Record the end of a call."""
        self._write(kind, what, call, None, more)

    def _write(self, kind: EntryKind, what: str, call: int, node: str | None, more: dict[str, Any]) -> None:
        fields = {"at": self._runtime.monotonic(), "kind": kind, "what": what, "node": node or self.node}
        os.write(self._file, json.dumps({**fields, "call": call, **more}).encode() + b"\n")


def recorder_in(folder: Path, name: str, runtime: Runtime) -> Recorder:
    """Return a recorder to a file that only this process writes."""
    return Recorder(folder / f"{name}-{runtime.process_id()}-{runtime.new_id()[:6]}.jsonl", runtime, node=name)


def read_lines(folder: Path) -> History:
    """Merge the files of a folder, in the order of time; calls get new numbers."""
    entries: list[Entry] = []
    for number, path in enumerate(sorted(folder.glob("*.jsonl")), start=1):
        entries.extend(_entries(path.read_text(errors="replace").splitlines(), number))
    return History(sorted(entries, key=lambda entry: entry.at))


def _entries(lines: Iterable[str], file: int) -> Iterator[Entry]:
    for line in lines:
        try:
            fields = json.loads(line)
        except ValueError:  # the disk was full, or the machine went down
            continue
        call = fields.pop("call")
        yield Entry(**{**fields, "kind": EntryKind(fields["kind"]), "call": call and file * 1_000_000 + call})
