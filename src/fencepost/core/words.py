"""The words that options take, each defined once: type checkers read them here, and so does the check at run time.

At run time capitals do not matter for the words of a policy, nor whether a space, ``-`` or ``_`` stands between two
parts of one: settings files and command lines are read by the same rules. Code is asked for the spelling below.
"""

from __future__ import annotations

from typing import Literal

TypeWord = Literal["scheduled", "event", "manual", "bulk", "near-real-time"]
OverlapWord = Literal["forbid", "queue", "replace", "allow"]
OnCrashWord = Literal["rerun", "fail", "hold"]
EffectsWord = Literal["unfenced", "fenced", "idempotent"]
IsolationWord = Literal[
    "read committed",
    "repeatable read",
    "serializable",
    "READ COMMITTED",  # as SQL has them
    "REPEATABLE READ",
    "SERIALIZABLE",
]

MisfireKind = Literal["once", "all", "skip"]
MisfireWord = MisfireKind | str
"""One of these, or ``"all:10"``: the newest ten at most. Any text, for type checkers; what is neither is refused."""

DstWord = Literal["auto", "first", "second", "both", "skip", "real"]
OverWord = Literal["nodes", "threads"]
OnSkipWord = Literal["return", "raise"]
