"""6. What was acknowledged is in every later read, and what was refused left no trace.

For resources: `write` (name, token, ``detail["key"]``) and `read` (``detail["keys"]``, all keys that it found). The
effects at the end count as the last read. For the ledger: a requested run exists (`request`), and so does an attempt
that was ended (`finish`, with the run as the name, and its token; with ``detail["outcome"]`` None the claim was handed
back, which leaves nothing).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fencepost.proof.calls import Call, calls
from fencepost.proof.evidence import Effect, Evidence, Violation
from fencepost.proof.history import EntryKind

NAME = "acknowledged writes"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Compare answers with later reads, and with the state at the end."""
    writes = [call for call in calls(evidence.history, "write") if "key" in call.detail]
    yield from _later_reads(evidence, writes)
    if writes and (evidence.effects or evidence.notes.get("effects_are_known")):
        yield from _in_the_end(evidence.effects, writes)
    yield from _requests(evidence)
    yield from _endings(evidence)


def _later_reads(evidence: Evidence, writes: list[Call]) -> Iterator[Violation]:
    by_name: dict[str, list[Call]] = defaultdict(list)
    for write in writes:
        if write.is_ok:
            by_name[write.name].append(write)
    for read in calls(evidence.history, "read"):
        if not read.is_ok or "keys" not in read.detail:
            continue
        seen = set(read.detail["keys"])
        for write in by_name[read.name]:
            if write.ended_at < read.sent_at and write.detail["key"] not in seen:
                yield Violation(
                    NAME, f"{read.name!r} did not show {write.detail['key']!r} any more", f"{write}; then {read}"
                )


def _in_the_end(effects: tuple[Effect, ...], writes: list[Call]) -> Iterator[Violation]:
    there = {(effect.resource, effect.key) for effect in effects}
    exact = {(effect.resource, effect.key, effect.token) for effect in effects}
    asked = {(write.name, write.detail["key"]) for write in writes}
    # After a lost reply, the same request may be repeated with the same token: accepted before, refused now.
    may_have = {_exact(write) for write in writes if write.is_ok or write.is_unknown}
    for write in writes:
        if write.is_ok and _exact(write)[:2] not in there:
            yield Violation(NAME, f"{write.name!r} acknowledged {write.detail['key']!r}, and it is gone", str(write))
        if _exact(write) in exact - may_have:
            yield Violation(NAME, f"{write.name!r} refused {write.detail['key']!r}, and it is there", str(write))
    for effect in effects:
        if (effect.resource, effect.key) not in asked:
            yield Violation(NAME, f"{effect.resource!r} has {effect.key!r}, which was never written", str(effect))


def _exact(write: Call) -> tuple[str, str, int]:
    return write.name, write.detail["key"], write.token or 0


def _requests(evidence: Evidence) -> Iterator[Violation]:
    runs = {run.id for run in evidence.runs}
    for call in calls(evidence.history, "request"):
        run_id = call.detail.get("run")
        if call.is_ok and run_id is not None and int(run_id) not in runs:
            yield Violation(NAME, f"run {run_id} was acknowledged and is not recorded", str(call))


def _endings(evidence: Evidence) -> Iterator[Violation]:
    ended = {(str(each.run_id), each.token): each.outcome for each in evidence.attempts if each.outcome is not None}
    finishes = [call for call in calls(evidence.history, "finish") if call.name and call.token is not None]
    may_have = {(call.name, call.token) for call in finishes if call.is_ok or call.is_unknown}
    for call in finishes:
        outcome = call.detail.get("outcome", "")
        kept = ended.get((call.name, call.token or 0))
        is_same = kept is not None and kept == outcome != "lost"
        if call.kind is EntryKind.REFUSED and is_same and (call.name, call.token) not in may_have:
            yield Violation(NAME, f"the end of run {call.name} was refused, and is on record as {kept}", str(call))
        if not call.is_ok or outcome is None:
            continue
        if kept is None or (outcome and kept != outcome):
            yield Violation(
                NAME,
                f"run {call.name} was ended as {outcome or '?'}, and is on record as {kept or 'not ended'}",
                str(call),
            )
