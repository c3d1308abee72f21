"""The logs of attempts that wrote little, and ended before any of it was looked at: most of those that write anything.

They need nothing of what `fencepost.engine.logs.attempt_log` does for the others: each is one chunk, which is complete.
So they are kept as they are, and masked and packed many at a time. That takes a tenth of the processor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from fencepost.core.log_chunks import LogChunk
from fencepost.core.secrets import has_no_secret, scrub
from fencepost.engine.logs.attempt_log import packed

Key = tuple[int, int]
"""A run and the number of its attempt."""

_TOGETHER = 64  # are looked at for secrets at once: one that may have some costs the others a look of their own


class BriefLog(NamedTuple):
    """What an attempt wrote to one stream: when it was read, and its number among those of its worker."""

    number: int
    stream: int
    at_us: int
    text: bytes


class BriefLogs:
    """Those that wait for the ledger. The caller serializes calls, except those of `chunks`."""

    def __init__(self) -> None:
        self._waiting: dict[Key, BriefLog] = {}
        self._taken: list[tuple[Key, BriefLog]] = []  # handed out, and not in the ledger yet
        self._chunks: list[LogChunk] | None = None  # of these
        self._taken_size = 0
        self.size = 0  # bytes, handed out or not

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, logs: Mapping[Key, BriefLog]) -> None:
        """Keep these. One of them may be there, if a job writes frames of its own."""
        self.size -= sum([len(self._waiting[key].text) for key in self._waiting.keys() & logs.keys()])
        self._waiting.update(logs)
        self.size += sum([len(log.text) for log in logs.values()])

    def give_up(self, least_bytes: int, least: int) -> list[tuple[Key, BriefLog]]:
        """Forget the oldest, at least so many bytes and so many logs, but none that is handed out; return them."""
        gone, size = list[tuple[Key, BriefLog]](), 0
        for item in self._waiting.items():
            if size >= least_bytes and len(gone) >= least:
                break
            gone.append(item)
            size += len(item[1].text)
        for key, _ in gone:
            del self._waiting[key]
        self.size -= size
        return gone

    def take(self, most_bytes: int, most: int) -> None:
        """Let `chunks` return what waits, up to about so many bytes. Nothing new while something is handed out."""
        if self._taken or most_bytes <= 0:
            return
        self._chunks = None
        for item in islice(self._waiting.items(), most):
            if self._taken_size >= most_bytes:
                break
            self._taken.append(item)
            self._taken_size += len(item[1].text)
        for key, _ in self._taken:
            del self._waiting[key]

    def chunks(self) -> list[LogChunk]:
        """Mask and pack what was taken. Takes a while: called without the caller's lock."""
        if self._chunks is None:
            batches = range(0, len(self._taken), _TOGETHER)
            self._chunks = [each for at in batches for each in _chunks(self._taken[at : at + _TOGETHER])]
        return self._chunks

    def sent(self) -> int:
        """Note that the ledger has what was handed out; return how many chunks that were."""
        count = len(self._taken)
        self.size -= self._taken_size
        self._taken, self._taken_size, self._chunks = [], 0, None
        return count


def _chunks(taken: list[tuple[Key, BriefLog]]) -> list[LogChunk]:
    texts = [log.text if log.text.endswith(b"\n") else log.text + b"\n" for _, log in taken]
    if not _are_harmless(b"".join(texts)):
        texts = [_masked(text) for text in texts]
    return [
        LogChunk(run_id, attempt, 0, log.at_us, text.count(b"\n"), len(text), 0, packed(text))
        for ((run_id, attempt), log), text in zip(taken, texts, strict=True)
    ]


def _are_harmless(texts: bytes) -> bool:
    """Whether none of these texts contains a secret, or something that is not UTF-8."""
    try:
        return has_no_secret(texts.decode())
    except UnicodeDecodeError:
        return False


def _masked(text: bytes) -> bytes:
    return scrub(text.decode("utf-8", "backslashreplace")).encode("utf-8", "backslashreplace")
