"""The words that options accept. Type checkers and the checks at run time use the same definitions.

At run time, the words of a policy are compared without regard to case, and a space, ``-`` and ``_`` are equal. The same
rules apply to settings files and command lines. In code, type checkers demand the spelling below.
"""

from __future__ import annotations

from typing import Literal

TypeWord = Literal["scheduled", "event", "manual", "bulk", "near-real-time"]
OverlapWord = Literal["forbid", "queue", "replace", "allow"]
OnCrashWord = Literal["rerun", "fail", "hold"]
ReasonWord = Literal["optional", "always"]
EffectsWord = Literal["unfenced", "fenced", "idempotent"]
IsolationWord = Literal[
    "read committed",
    "repeatable read",
    "serializable",
    "READ COMMITTED",  # as written in SQL
    "REPEATABLE READ",
    "SERIALIZABLE",
]

MisfireKind = Literal["once", "all", "skip"]
MisfireWord = MisfireKind | str
"""One of these, or ``"all:10"``: at most the newest ten. Type checkers accept any text; the run-time check does not."""

DstWord = Literal["auto", "first", "second", "both", "skip", "real"]
OverWord = Literal["nodes", "threads"]
OnSkipWord = Literal["return", "raise"]
