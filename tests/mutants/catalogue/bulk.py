"""Bulk work that loses items, lands them twice, or counts them wrong."""

from __future__ import annotations

from tests.mutants.planting import Code, mutant

_TEST = "tests/bulk/test_landing.py"
_RESTART = (
    f"{_TEST}::TestPoison::test_one_more_than_the_limit_ends_the_run_and_a_restart_goes_on_where_it_stopped[sqlite-own]"
)
_COMMITS = "tests/crashpoints/test_bulk.py::test_whatever_becomes_of_a_commit_each_item_lands_once"
_LANDER = "fencepost.bulk.landing:Lander"
_CHECKPOINT = "fencepost.bulk.checkpoint"
_PLAN = "fencepost.bulk.plan"
_QUERY = "fencepost.bulk.readers.page_query:PageQuery"
_FEED = "fencepost.bulk.readers.page_feed:PageFeed"

_TRANSACTION = """\
            transaction = RunTransaction(self._run, self._target, final=False)
            with transaction as tx:
                effects(tx)
                transaction.end_with(self._checkpoint.moving(tx, self.mark, after, counts))
"""
_IN_TWO = """\
            with self._run.transaction(self._target) as tx:
                effects(tx)
            with self._run.transaction(self._target) as tx:
                self._checkpoint.move(tx, self.mark, after, counts)
"""
_MOVED_FIRST = """\
            with self._run.transaction(self._target) as tx:
                self._checkpoint.move(tx, self.mark, after, counts)
            with self._run.transaction(self._target) as tx:
                effects(tx)
"""
_UNFENCED = """\
            with self._target.connect() as tx:
                tx.exec_driver_sql("BEGIN IMMEDIATE")
                effects(tx)
                self._checkpoint.move(tx, self.mark, after, counts)
                tx.commit()
"""
_LANDED = """\
    if kept is not None and after is not None and stands_at == after.to_json() and kept.token == self._writer.token:
        return True
"""

BULK = (
    mutant(
        "coalesced run over a back-fill",
        "a run that stands for several windows does again the one that was back-filled before",
        Code("fencepost.bulk.coalesced:narrower_runs", "row.ticks < 2", "row.ticks > 0"),
        tests="tests/bulk/test_restart.py::TestCoalesced::"
        "test_a_window_that_was_back_filled_before_does_not_land_again_and_the_rest_is_named",
    ),
    mutant(
        "checkpoints without their ledger",
        "bulk work that one ledger has done counts as done for another one",
        Code("fencepost.ledger.naming:Naming.instance", 'f"{self.ledger}:{name}"', "name"),
        tests="tests/bulk/test_two_ledgers.py::TestTwoLedgers::test_so_does_one_for_the_same_window[sqlite-other]",
    ),
    mutant(
        "root of repetitions not noted",
        "a repetition forgets what it goes on with when one in between is pruned, and all of it lands twice",
        Code("fencepost.ledger.requests:_repeated", "each._replace(root=root)", "each"),
        tests="tests/bulk/test_restart.py::TestWhatWasPruned::"
        "test_a_repetition_goes_on_though_one_in_between_is_no_longer_on_record",
    ),
    mutant(
        "older checkpoints not looked for",
        "bulk work begun by an older version is begun anew, and lands twice",
        Code("fencepost.bulk.labels:label_of", "names.nameless_until is None or", "True or"),
        tests="tests/bulk/test_two_ledgers.py::TestFromBeforeTheNames::test_what_was_complete_is_refused[sqlite-other]",
    ),
    mutant(
        "checkpoint not compared",
        "a chunk moves the checkpoint on from wherever it is",
        Code(f"{_CHECKPOINT}:Checkpoint.moving", "AND position = %s", "AND %s <> ''"),
        among="bulk",
    ),
    mutant(
        "checkpoint after its chunk",
        "the checkpoint is moved in a transaction of its own, after the items were committed",
        Code(f"{_LANDER}._move_on", _TRANSACTION, _IN_TWO),
        among="bulk",
    ),
    mutant(
        "checkpoint before its chunk",
        "the checkpoint is moved in a transaction of its own, before the items are committed",
        Code(f"{_LANDER}._move_on", _TRANSACTION, _MOVED_FIRST),
        among="bulk",
    ),
    mutant(
        "chunk past its fence",
        "a chunk is committed without asking whether its run is still ours",
        Code(f"{_LANDER}._move_on", _TRANSACTION, _UNFENCED),
        tests=f"{_TEST}::TestOthersWhoWrite::test_a_stale_writer_is_refused_and_its_chunk_is_not_there[sqlite-other]",
    ),
    mutant(
        "unanswered chunk taken for landed",
        "a chunk whose COMMIT was not answered is passed over",
        Code(f"{_LANDER}._move_on", "and self._has_landed(after, error)", ""),
        tests=f"{_COMMITS}[Way.ERROR]",
    ),
    mutant(
        "unanswered chunk lands again",
        "a chunk that has landed without an answer is written again from where the checkpoint is now",
        Code(
            f"{_LANDER}._has_landed",
            _LANDED,
            "    self.mark = self.mark if kept is None else kept.mark\n    return False\n",
        ),
        tests=f"{_COMMITS}[Way.LOST]",
    ),
    mutant(
        "halves that overlap",
        "of a chunk that is divided, an item lands with both halves",
        Code(
            f"{_LANDER}._divide", "self._land(done, middle, end)", "self._land(done, max(middle - 1, first + 1), end)"
        ),
        among="bulk",
    ),
    mutant(
        "half forgotten",
        "of a chunk that is divided, an item between the halves lands with none",
        Code(f"{_LANDER}._divide", "self._land(done, middle, end)", "self._land(done, min(middle + 1, end), end)"),
        among="bulk",
    ),
    mutant(
        "skip not counted",
        "an item that is put aside is counted as read only",
        Code(f"{_LANDER}._commit", "len(letters), 1)", "0, 1)"),
        among="bulk",
    ),
    mutant(
        "dead letter before its chunk",
        "dead letters are written in a transaction of their own, before their chunk",
        Code(
            f"{_LANDER}._commit",
            "write = self._step.write",
            "self._run.in_transaction(lambda tx: put_aside(tx, letters, self._writer), self._target)\n"
            "    write = self._step.write",
        ),
        Code(f"{_LANDER}._commit", "if letters:", "if not after:"),
        among="bulk",
    ),
    mutant(
        "dead letter not written",
        "an item that fails is put aside and forgotten",
        Code(f"{_LANDER}._commit", "put_aside(tx, letters, self._writer)", "pass"),
        among="bulk",
    ),
    mutant(
        "part taken back although begun",
        "a parent takes a part from whoever executes it",
        Code("fencepost.bulk.conducting:PartitionRuns._taken_back", "part.state != RunState.QUEUED.value", "False"),
        Code(
            "fencepost.ledger.parts:take_back",
            "end.where(c.id == part.run_id, is_queued, c.available_at <= now)",
            "end.where(c.id == part.run_id)",
        ),
        Code("fencepost.ledger.parts:take_back", "x.run_id.is_not(None)", "x.run_id < 0"),
        among="bulk",
    ),
    mutant(
        "plan made anew",
        "whoever goes on divides what is left anew, and works by that",
        Code(f"{_PLAN}:Plans.ready", "if found is not None:", "if found is not None and found.done_by is not None:"),
        Code(f"{_PLAN}:Plans.ready", "return made", "return replace(made, slices=slices)"),
        among="bulk",
    ),
    mutant(
        "slices that overlap",
        "a partition begins with the last item of the one before",
        Code(
            f"{_FEED}.__init__",
            'self._first = part.get("after")',
            'self._first = [max(part["after"][0] - 1, 0)] if "after" in part else None',
        ),
        among="bulk",
    ),
    mutant(
        "slices with a gap",
        "a partition ends before its last item",
        Code(f"{_QUERY}.bounds", '"<="', '"<"'),
        among="bulk",
    ),
    mutant(
        "done before the last half",
        "a partition is marked as done with the first half of its last chunk",
        Code(f"{_LANDER}._commit", "done.page.is_last and end == len(done.page.items)", "done.page.is_last"),
        tests="tests/bulk/test_last_chunk.py::test_a_run_that_ends_within_its_last_chunk_goes_on_within_it[sqlite-own]",
    ),
    mutant(
        "last page taken for granted",
        "a full page is taken for the last one",
        Code(f"{_FEED}.keyed_rows", "len(rows) <= limit", "len(rows) <= limit + 1"),
        among="bulk",
    ),
    mutant(
        "position of the first item",
        "the checkpoint is moved behind the first item of a chunk",
        Code(f"{_LANDER}._commit", "position_after(end - 1)", "position_after(first)"),
        among="bulk",
    ),
    mutant(
        "position of the page",
        "the checkpoint is moved behind the whole page when a part of it has landed",
        Code(f"{_LANDER}._commit", "position_after(end - 1)", "position_after(len(done.page.items) - 1)"),
        tests=_RESTART,
    ),
    mutant(
        "counts not summed",
        "the whole has the counts of its last partition",
        Code("fencepost.bulk.checkpoint:total_counts", "total.plus(each.counts)", "each.counts"),
        among="bulk",
    ),
    mutant(
        "counts of one chunk",
        "the counts beside the checkpoint are those since it was last read",
        Code(f"{_LANDER}._move_on", "self.mark, self.counts = after, counts", "self.mark = after"),
        among="bulk",
    ),
    mutant(
        "pages that overlap",
        "the page that is read ahead begins within the one before it",
        Code("fencepost.bulk.read_ahead:ReadAhead._read", "len(page.items) - 1", "max(len(page.items) - 2, 0)"),
        among="bulk",
    ),
    mutant(
        "missing partitions forgotten",
        "a step is done although a partition was given up",
        Code("fencepost.bulk.conducting:PartitionRuns.see_through", "if self._gave_up:", "if False:"),
        Code("fencepost.bulk.conducting:Conductor._partitions", "if missing:", "if False:"),
        among="bulk",
    ),
    mutant(
        "repetition begins anew",
        "a run that is repeated does what was done before",
        Code("fencepost.bulk.instance:_name", 'f"run-{first.run_id}"', 'f"run-{row.id}"'),
        tests=_RESTART,
    ),
)
