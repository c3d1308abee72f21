"""What is kept of the log of one attempt: the first 64 kB and the last 192 kB.

::

    written ──▶ lines ──▶ head (until 64 kB) ──▶ chunks 0, 1, 2, …
                  │                                                             ──▶ ledger
                  └─────▶ ring (the last 192 kB) ──▶ chunks 1000000, 1000001, …; older ones of these are removed again

Every chunk says how many lines came before it that are not in the head. So a reader can tell how many lines are missing
between two chunks, whether they were never written or removed again.

**Promises.** The memory that an attempt takes is bounded, whatever it writes and however long the ledger is away. What
is handed out for the ledger stays here until the ledger has it.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from typing import NamedTuple

from fencepost.core.log_chunks import FIRST_OF_TAIL, LogChunk
from fencepost.engine.logs.masking import LogMask, safe_cut, whole

HEAD_BYTES = 64 << 10  # how an attempt began; with the tail, the ledger keeps 256 kB of it
TAIL_BYTES = 192 << 10  # how it ended; as much waits in memory while the ledger is away
CHUNK_BYTES = 32 << 10  # a row at most; once so much waits, it is written before the second is over
LONGEST_LINE = 64 << 10  # waits in memory for its end; a longer line is cut
RECORDS = 3  # beside 1 and 2, standard output and standard error: the stream of log records
_SHORT = 512  # bytes: what most runs write, if anything
_TINY = 128  # bytes, which compression hardly makes fewer
_HEAD = struct.Struct("<BBBHH")  # of a zlib stream, and of its only block, which is not compressed
_MARGIN = 4 << 10  # what is known of a line behind the place where it is cut


class Block(NamedTuple):
    """Complete lines that were written together. `before`: how many lines of the attempt came before them."""

    at_us: int
    text: bytes
    lines: int
    before: int
    is_head: bool


class AttemptLog:
    """The log of one attempt. The caller serializes calls, except those of `chunks`."""

    def __init__(self, run_id: int, attempt: int) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.is_over = False
        self.pending = 0  # bytes that wait to be written
        self.unsent: list[LogChunk] = []  # handed out, and not in the ledger yet
        self.is_taken = False  # something was handed out, and the ledger has not confirmed it yet
        self._partial = {1: b"", 2: b"", RECORDS: b""}  # the last line of each stream, without its end
        self._head: list[Block] = []
        self._head_left = HEAD_BYTES
        self._head_lines = 0
        self._ring: deque[Block] = deque()
        self._ring_bytes = 0
        self.lines = 0  # so far, kept or not
        self._head_lines_stored = 0
        self._seq_of_head, self._seq_of_tail = 0, FIRST_OF_TAIL
        self._stored: deque[tuple[int, int]] = deque()  # chunks of the tail in the ledger: number and size
        self._stored_bytes = 0
        self._mask = LogMask()

    @property
    def waiting(self) -> int:
        """How many bytes wait to be written, handed out or not. A chunk that only counts missing lines waits, too."""
        return self.pending + sum(chunk.size + 1 for chunk in self.unsent)

    # -- in --------------------------------------------------------------------------------------------------------

    def add(self, stream: int, chunk: bytes, at_us: int) -> None:
        """Take in what was written to one stream."""
        end = chunk.rfind(b"\n") + 1
        if end:
            self._keep(at_us, self._partial[stream] + chunk[:end])
            self._partial[stream] = chunk[end:]
        else:
            self._partial[stream] += chunk
        while len(self._partial[stream]) >= LONGEST_LINE + _MARGIN:
            line = self._partial[stream]
            cut = safe_cut(line, LONGEST_LINE)
            self._keep(at_us, line[:cut] + b"\n")
            self._partial[stream] = line[cut:]

    def end(self, at_us: int) -> None:
        """Nothing more will come: keep what did not end with a line."""
        self.is_over = True
        for stream, rest in self._partial.items():
            if rest:
                self._keep(at_us, rest + b"\n")
            self._partial[stream] = b""

    def _keep(self, at_us: int, text: bytes) -> None:
        if self._head_left:
            text = self._keep_in_head(at_us, text)
        if text:
            self._keep_in_ring(at_us, text)

    def _keep_in_head(self, at_us: int, text: bytes) -> bytes:
        """Keep what there is room for; return the rest, which is complete lines again."""
        left = self._head_left
        if len(text) <= left:
            taken, rest = text, b""
        else:
            end = text.rfind(b"\n", 0, left) + 1
            if not end and not self.lines:  # a first line that is too long: some of it is better than nothing
                end = safe_cut(text, left)
            taken, rest = text[:end], text[end:]
            if taken and not taken.endswith(b"\n"):
                taken += b"\n"
        self._head_left = 0 if rest else left - len(taken)
        if taken:
            lines = taken.count(b"\n")
            self._head.append(Block(at_us, taken, lines, self.lines, is_head=True))
            self._head_lines += lines
            self.lines += lines
            self.pending += len(taken)
        return rest

    def _keep_in_ring(self, at_us: int, text: bytes) -> None:
        if len(text) > TAIL_BYTES:
            cut = text.find(b"\n", len(text) - TAIL_BYTES - 1) + 1
            self.lines += text.count(b"\n", 0, cut)
            text = text[cut:]
        lines = text.count(b"\n")
        self._ring.append(Block(at_us, text, lines, self.lines, is_head=False))
        self.lines += lines
        self._ring_bytes += len(text)
        self.pending += len(text)
        while self._ring_bytes - len(self._ring[0].text) >= TAIL_BYTES:
            dropped = self._ring.popleft()
            self._ring_bytes -= len(dropped.text)
            self.pending -= len(dropped.text)

    # -- out -------------------------------------------------------------------------------------------------------

    def take(self) -> list[Block]:
        """Hand out what waits to be written, the oldest first; nothing while something handed out is not written."""
        if self.unsent:
            return []
        ring = list(self._ring)
        over = self._ring_bytes - TAIL_BYTES
        if over > 0:
            first = ring[0]
            cut = first.text.find(b"\n", over - 1) + 1
            lines = first.text.count(b"\n", 0, cut)
            ring[0] = first._replace(text=first.text[cut:], lines=first.lines - lines, before=first.before + lines)
        blocks = [*self._head, *ring]
        self._head.clear()
        self._ring.clear()
        self._ring_bytes = self.pending = 0
        kept = [block for block in blocks if block.text]
        self.is_taken = bool(kept)
        return kept

    def chunks(self, blocks: list[Block]) -> list[LogChunk]:
        """Mask, cut and compress what was handed out. Takes a while: called without the caller's lock."""
        return [chunk for block in _joined(blocks) for chunk in self._cut(block)]

    def _cut(self, block: Block) -> list[LogChunk]:
        text = self._mask.masked(block.text.decode("utf-8", "backslashreplace")).encode("utf-8", "backslashreplace")
        made: list[LogChunk] = []
        place, before = 0, block.before
        while place < len(text):
            end = len(text)
            if end - place > CHUNK_BYTES:
                end = text.rfind(b"\n", place, place + CHUNK_BYTES) + 1 or whole(text, place + CHUNK_BYTES)
            part = text[place:end]
            dropped = 0 if block.is_head else before - self._head_lines
            made.append(self._chunk(part, block.at_us, dropped, is_head=block.is_head))
            place, before = end, before + made[-1].lines
        if made:  # a mask may have taken the place of several lines, which are not missing
            made[-1] = made[-1]._replace(lines=made[-1].lines + block.before + block.lines - before)
        return made

    def _chunk(self, text: bytes, at_us: int, dropped: int, *, is_head: bool) -> LogChunk:
        if is_head:
            seq, self._seq_of_head = self._seq_of_head, self._seq_of_head + 1
        else:
            seq, self._seq_of_tail = self._seq_of_tail, self._seq_of_tail + 1
        return LogChunk(self.run_id, self.attempt, seq, at_us, text.count(b"\n"), len(text), dropped, packed(text))

    def sent(self) -> tuple[int, int] | None:
        """Note that the ledger has what was handed out; return the first and last chunk that it need not keep."""
        for chunk in self.unsent:
            if chunk.seq < FIRST_OF_TAIL:
                self._head_lines_stored += chunk.lines
            else:
                self._stored.append((chunk.seq, chunk.size))
                self._stored_bytes += chunk.size
        self.unsent = []
        self.is_taken = False
        first, last = self._stored[0][0] if self._stored else 0, -1
        while self._stored and self._stored_bytes - self._stored[0][1] >= TAIL_BYTES:
            last, size = self._stored.popleft()
            self._stored_bytes -= size
        return None if last < 0 else (first, last)

    def give_up(self, at_us: int) -> int:
        """Drop what waits to be written; return how many lines that were.

        A chunk without text remains to be written. It counts all lines that are not in the head, as others do.
        """
        given_up = sum([block.lines for block in (*self._head, *self._ring)])
        dropped = self.lines - self._head_lines_stored
        self._head.clear()
        self._ring.clear()
        self._ring_bytes = 0
        self.pending = 0
        self.unsent = [self._chunk(b"", at_us, dropped, is_head=False)]
        return given_up


def packed(text: bytes) -> bytes:
    """Compress a text, as any zlib can unpack it. What is needed for a large one takes far too long for a short one."""
    size = len(text)
    if size <= _TINY:  # stored as it is
        return _HEAD.pack(0x78, 1, 1, size, size ^ 0xFFFF) + text + zlib.adler32(text).to_bytes(4, "big")
    if size > _SHORT:
        return zlib.compress(text, 1)
    packing = zlib.compressobj(1, zlib.DEFLATED, 9, 1)  # a window of 512 bytes
    return packing.compress(text) + packing.flush()


def _joined(blocks: list[Block]) -> list[Block]:
    """Join blocks that follow each other without a gap, up to the size of a chunk: small ones are the rule."""
    made: list[Block] = []
    for block in blocks:
        last = made[-1] if made else None
        if last is not None and _follows(block, last) and len(last.text) + len(block.text) <= CHUNK_BYTES:
            made[-1] = last._replace(text=last.text + block.text, lines=last.lines + block.lines)
        else:
            made.append(block)
    return made


def _follows(block: Block, last: Block) -> bool:
    return last.before + last.lines == block.before and last.is_head == block.is_head
