"""How a worker process marks in its output which run wrote what, and how the supervisor reads that.

Standard output and standard error of a worker are two pipes, into which its jobs, their C code and their child
processes write as they like. Between what they write stand frames, each written at once and small enough that the
kernel keeps it in one piece::

    MARK b RUN ATTEMPT ;        from here on, what is written belongs to this attempt
    MARK e ;                    it has ended: what follows belongs to no run
    MARK l LENGTH ; TEXT        a log record of the attempt, or a part of one
    MARK p LENGTH ; TEXT        a part of the value of a secret; more follows
    MARK s LENGTH ; TEXT        the last part: the value is masked in all that follows

`MARK` contains random digits that the supervisor has chosen for this worker, so that no job writes it by accident. A
worker that has the next run at hand already writes the end of one and the beginning of the next at once.

**Not promised.** That a job cannot write such a frame: it runs in the worker, and can find out the digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LARGEST_FRAME = 4096  # PIPE_BUF on Linux: what is written at once stays together
_LONGEST_HEAD = 64  # bytes; a head has 33 at most, so a mark without one by then was written by a job
_BRIEF = 512  # bytes: what most runs write, if anything
_BEGINS_MARK = b"\x00\x1e"
_END_FRAME = re.compile(_BEGINS_MARK + rb"[0-9a-f]+e;")


class Begin(NamedTuple):
    """An attempt begins."""

    run_id: int
    attempt: int


class End(NamedTuple):
    """The attempt has ended; `silent` more have begun and ended, and wrote nothing."""

    silent: int = 0


class Logged(NamedTuple):
    """A part of a log record."""

    text: bytes


class Kept(NamedTuple):
    """A part of the value of a secret, which must not be passed on; `is_last` if the value is complete."""

    text: bytes
    is_last: bool


class Brief(NamedTuple):
    """Attempts that follow each other, as run, attempt and text: each began, wrote at most this much, and ended."""

    attempts: list[tuple[bytes, bytes, bytes]]


Piece = bytes | Begin | End | Logged | Kept | Brief


def mark_of(secret: str) -> bytes:
    """Return what begins a frame."""
    return _BEGINS_MARK + secret.encode()


def begin_frame(mark: bytes, run_id: int, attempt: int) -> bytes:
    return b"%sb%d %d;" % (mark, run_id, attempt)


def end_frame(mark: bytes) -> bytes:
    return mark + b"e;"


def has_an_end(chunk: bytes) -> bool:
    """Whether an attempt ended in a chunk."""
    return _END_FRAME.search(chunk) is not None


def log_frames(mark: bytes, text: bytes) -> Iterator[bytes]:
    """Split a record into frames."""
    most = LARGEST_FRAME - len(mark) - _LONGEST_HEAD
    for place in range(0, len(text), most):
        part = text[place : place + most]
        yield b"%sl%d;%s" % (mark, len(part), part)


def secret_frames(mark: bytes, value: bytes) -> Iterator[bytes]:
    """Split the value of a secret into frames."""
    most = LARGEST_FRAME - len(mark) - _LONGEST_HEAD
    for place in range(0, len(value), most):
        part = value[place : place + most]
        yield b"%s%s%d;%s" % (mark, b"p" if place + most < len(value) else b"s", len(part), part)


class OutputSplitter:
    """Reads one pipe: chunks as they come in, pieces out. A frame that is not complete waits for the next chunk."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        word = re.escape(mark)
        self._head = re.compile(
            word + rb"(?:b(?P<run>\d{1,20}) (?P<attempt>\d{1,10})|(?P<end>e)|(?P<form>[lps])(?P<length>\d{1,5}));"
        )
        self._silent = re.compile(rb"(?:%sb\d{1,20} \d{1,10};%se;)+" % (word, word))
        brief = rb"%sb(\d{1,20}) (\d{1,10});([^\x00]{0,%d}+)%se;" % (word, _BRIEF, word)
        self._brief, self._briefs = re.compile(brief), re.compile(rb"(?:%s)++" % brief)
        self._unread = b""

    def split(self, chunk: bytes) -> list[Piece]:
        """Return the pieces of what was read."""
        text = self._unread + chunk if self._unread else chunk
        self._unread = b""
        if b"\x00" not in text:
            return [text]
        pieces: list[Piece] = []
        place = 0
        while (start := text.find(self._mark, place)) >= 0:
            if start > place:
                pieces.append(text[place:start])
            place = self._frame(text, start, pieces)
            if place < 0:
                self._unread = text[start:]
                return pieces
        kept = self._beginning_of_mark(text, place)
        self._unread = text[kept:]
        if kept > place:
            pieces.append(text[place:kept])
        return pieces

    def rest(self) -> bytes:
        """Return what was left of an incomplete frame, at the end of the pipe."""
        rest, self._unread = self._unread, b""
        return b"" if rest.startswith(self._mark) else rest

    def _frame(self, text: bytes, start: int, pieces: list[Piece]) -> int:
        """Add the frame at `start`; return where it ends, or -1 if the rest of it has not been read yet."""
        if silent := self._silent.match(text, start):
            pieces.append(End(text.count(self._mark, start, silent.end()) // 2))
            return silent.end()
        if briefs := self._briefs.match(text, start):
            pieces.append(Brief(self._brief.findall(text, start, briefs.end())))
            return briefs.end()
        return self._single_frame(text, start, pieces)

    def _single_frame(self, text: bytes, start: int, pieces: list[Piece]) -> int:
        head = self._head.match(text, start)
        if head is None:
            if len(text) - start < len(self._mark) + _LONGEST_HEAD:
                return -1
            pieces.append(self._mark)  # a job has written the mark itself
            return start + len(self._mark)
        if head["length"] is not None:
            end = head.end() + int(head["length"])
            if end > len(text):
                return -1
            inner = text[head.end() : end]
            pieces.append(Logged(inner) if head["form"] == b"l" else Kept(inner, is_last=head["form"] == b"s"))
            return end
        pieces.append(End() if head["end"] else Begin(int(head["run"]), int(head["attempt"])))
        return head.end()

    def _beginning_of_mark(self, text: bytes, place: int) -> int:
        """Return where the text ends, or where something at its end may be the beginning of a frame."""
        start = text.find(b"\x00", max(place, len(text) - len(self._mark) + 1))
        while start >= 0 and not self._mark.startswith(text[start:]):
            start = text.find(b"\x00", start + 1)
        return len(text) if start < 0 else start
