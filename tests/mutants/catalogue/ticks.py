"""Due times that are planned twice, not at all, or although nobody should."""

from __future__ import annotations

from tests.mutants.planting import Code, Text, mutant

_MISFIRE = "fencepost.core.misfire"
_PLANNING = "fencepost.ledger.planning"
_SERVING = "tests/engine/test_serving.py::TestAnotherProgramLives"
_TAKEN = (
    "taken = {row[0] for row in statements.rows(cursor, 'SELECT x.key FROM {exclusive} x WHERE x.run_id IS NOT NULL')}"
)

TICKS = (
    mutant(
        "schedules planned that nobody can run",
        "a schedule is planned although no living node has its job, and its runs pile up",
        Code(
            "fencepost.engine.ticks:Ticks.plan", "if not self._is_served(row.job, queue_of(row.policy)):", "if False:"
        ),
        tests=f"{_SERVING}::test_schedule_without_a_node_is_not_planned[sqlite]",
    ),
    mutant(
        "nobody is told of a job without a node",
        "a job that no node has had for long is never warned of",
        Code("fencepost.ledger.serving:_find_missed", "now_us - WARNED_AFTER_US", "-WARNED_AFTER_US"),
        tests="tests/ledger/test_serving.py::TestWarning::"
        "test_job_is_missed_ten_minutes_after_its_last_node_left_and_once[sqlite]",
    ),
    mutant(
        "whatever is there counts as planned",
        "a due time whose run was not recorded, for its id was taken, counts as planned",
        Code(
            "fencepost.ledger.dialects.postgres:PostgresDialect.unless_there",
            """f" ON CONFLICT ({key}){where and ' WHERE '}{where} DO NOTHING\"""",
            '" ON CONFLICT DO NOTHING"',
        ),
        Code(f"{_PLANNING}:insert_runs", "if count < len(requested) or", "if"),
        tests="tests/ledger/test_sequences.py::TestOnPostgres::"
        "test_due_time_that_cannot_be_recorded_is_not_passed_over[postgresql]",
    ),
    mutant(
        "unreadable schedule moved",
        "a node that cannot read a schedule moves its next due time, for everybody",
        Code(
            "fencepost.engine.ticks:Ticks.plan",
            "return Left.UNREADABLE",
            "return SchedulePlan([], row.planned_through, now_us + _UNREADABLE_FOR_US)",
        ),
        tests="tests/engine/test_planner.py::TestUnreadable::"
        "test_node_that_cannot_read_a_schedule_leaves_it_to_those_who_can[sqlite]",
    ),
    mutant(
        "schedules set aside for good",
        "a schedule that nobody could run is not planned again when a node with its job comes",
        Code("fencepost.engine.serving:Serving._read", "count = bring_back(connection, self._served)", "count = 0"),
        tests=f"{_SERVING}::test_misfire_once_makes_one_run_when_its_node_returns[sqlite]",
    ),
    mutant(
        "tick key without its schedule",
        "two schedules that are due at one instant share a tick",
        Code("fencepost.core.identity:tick_key", 'f"tick:{due_us}:{schedule}"', 'f"tick:{due_us}"'),
    ),
    mutant(
        "late ticks counted twice",
        "ticks that are made good for are planned once more, each by itself",
        Code(f"{_MISFIRE}:plan_schedule", "max(planned_through_us, late_through_us)", "planned_through_us"),
        tests="tests/core/test_misfire.py::test_a_schedule_is_planned_as_its_listed_dues_would_be",
    ),
    mutant(
        "more than a batch is dropped",
        "a schedule counts as planned up to now, though the batch was full before",
        Code(f"{_MISFIRE}:plan_schedule", "if len(items) >= limit else", "if len(items) > limit else"),
        tests="tests/core/test_misfire.py::test_a_plan_in_pieces_leaves_nothing_out",
    ),
    mutant(
        "late ticks are silent",
        "ticks that come too late leave no row",
        Code(f"{_MISFIRE}:_counted", "first_us is None or", "first_us is None or kind == 'misfired' or"),
        tests="tests/core/test_misfire.py::test_a_schedule_is_planned_as_its_listed_dues_would_be",
    ),
    mutant(
        "planning goes back",
        "how far a schedule is planned may fall again",
        Code(
            f"{_PLANNING}:_record",
            '"planned_through": f"{statements.greatest}(r.planned_through, e.planned_through)"',
            '"planned_through": "e.planned_through"',
        ),
        tests="tests/ledger/test_planning.py::TestDueSchedules::test_planned_through_never_goes_back[sqlite]",
    ),
    mutant(
        "changed schedule loses its next due time",
        "what is due between the change of a schedule and where its old form was planned through is never planned",
        Code("fencepost.ledger.schedule_rows:ScheduleChange._plan_again", "if through_us > self._now_us:", "if False:"),
        tests="tests/ledger/test_schedules.py::TestPlannedAhead::"
        "test_a_change_loses_no_due_time_of_the_new_form[sqlite-at run time]",
    ),
    mutant(
        "claimed before it is planned",
        "a tick planned before an outage begins before those that passed in it are planned: two runs instead of one",
        Code(
            "fencepost.engine.planned_first:PlannedFirst.may_claim",
            "return now >= self._since + _LONGEST_S or self._node.planning.has_planned_since(self._since)",
            "return True",
        ),
        tests=f"{_SERVING}::test_tick_planned_before_an_outage_is_one_run_with_those_that_passed_in_it[sqlite]",
    ),
    mutant(
        "set aside from older nodes",
        "runs are set aside while nodes of a version that never queues them again may come back",
        Code("fencepost.ledger.parking:_park", "if _had_older(cursor, statements, now_us):", "if False:"),
        tests="tests/ledger/test_parking.py::"
        "test_nor_is_anything_while_an_older_node_that_would_not_queue_it_again_may_come_back[sqlite-ended today]",
    ),
    mutant(
        "schedule moved, ticks not recorded",
        "a schedule moves on in another transaction than its runs are recorded in",
        Code(f"{_PLANNING}:plan", "limit = rounded(limit)", "limit = rounded(limit)\n    left = []"),
        Code(
            f"{_PLANNING}:plan",
            "runs = _record(cursor, statements, plans,",
            "left.extend(each for _, plan in plans for each in plan.requested)\n"
            "        plans = [(row, plan._replace(requested=[])) for row, plan in plans]\n"
            "        runs = _record(cursor, statements, plans,",
        ),
        Code(
            f"{_PLANNING}:plan",
            "return connection.write(work)",
            "done = connection.write(work)\n"
            "    if left:\n"
            "        connection.write(\n"
            "            lambda c: insert_runs(c, statements, left, now_us=done.now_us, horizon_us=horizon_us))\n"
            "    return done",
        ),
    ),
    mutant(
        "overlap decided at planning",
        "a tick is skipped because another runs when it is planned, not when it is due",
        Code(
            f"{_PLANNING}:_record",
            "requested = [request for _, plan in plans for request in plan.requested]",
            f"{_TAKEN}\n    requested = [each._replace(state='skipped') if each.exclusive_key in taken else each"
            " for _, plan in plans for each in plan.requested]",
        ),
        tests="tests/ledger/test_planning.py::TestDueSchedules::test_tick_whose_key_is_taken_when_it_is_planned_is_queued_all_the_same[sqlite]",
    ),
    mutant(
        "schedule planned without a lock",
        "two planners work at one schedule at a time",
        Code(f"{_PLANNING}:_due", "LIMIT {limit}{{skip_locked}}", "LIMIT {limit}"),
        tests="tests/ledger/test_interleavings.py::TestPlanners::"
        "test_two_planners_plan_every_tick_once_and_move_every_schedule[postgres]",
    ),
    mutant(
        "pause ignored",
        "a schedule that is paused is planned on",
        Code(
            "fencepost.ledger.schedules:pause",
            '"paused_until": until_us, "next_due_at": None}',
            '"paused_until": until_us}',
        ),
        tests="tests/ledger/test_schedules.py::TestPausing::"
        "test_pausing_stops_planning_and_resuming_records_what_was_missed[sqlite]",
    ),
    mutant(
        "pause leaves what is planned",
        "ticks that were planned ahead run although their schedule was paused",
        Code("fencepost.ledger.schedules:pause", "skip_ahead(", "str and (lambda *_, **__: 0)("),
        tests="tests/ledger/test_schedules.py::TestPausing::"
        "test_what_is_planned_ahead_is_skipped_and_the_rest_left_alone[sqlite]",
    ),
    mutant(
        "old deploy overwrites the new",
        "a node of an older generation puts its schedules in place of newer ones",
        Code("fencepost.ledger.deploys:_synced_one", "row.generation > generation or", "False or"),
        tests="tests/ledger/test_schedules.py::TestDeploys::test_an_older_deploy_never_overwrites_a_newer_one[sqlite]",
    ),
    mutant(
        "clock gate open",
        "a clock that leaps by hours is believed",
        Code("fencepost.core.clock_gate:ClockGate.is_open", "self.leap is None or not self.leap.is_ahead", "True"),
        tests="tests/core/test_clock_gate.py::test_a_leap_ahead_closes_the_gate",
    ),
    mutant(
        "planner believes any clock",
        "ticks are planned by a ledger's clock that has leapt a year ahead",
        Code("fencepost.engine.planner:Planner.step", "not self._clock.is_believed", "False"),
        Code("fencepost.engine.ticks:Ticks.plan", "not self._is_believed(now_us)", "False"),
        Code("fencepost.engine.ledger_clock:LedgerClock.is_believed", "self._gate.is_open", "True"),
        tests="tests/engine/test_node.py::test_a_wall_clock_that_steps_ahead_repeats_nothing_and_skips_no_year[2.0-sqlite]",
    ),
    mutant(
        "late tick begun after all",
        "ticks that lay queued while all nodes were down begin, though their job wants no late ones",
        Code("fencepost.engine.exchange:Exchange._use_identity", "self._settle_late(member)", "pass"),
        tests="tests/engine/test_node.py::"
        "test_a_tick_that_was_planned_before_all_nodes_went_down_follows_the_misfire_policy[sqlite-skip]",
    ),
    mutant(
        "requests misfire",
        "what somebody asked for is dropped as a late tick",
        Text("fencepost.ledger.misfiring:_TICKS", "AND r.origin_key LIKE 'tick:%%' ", ""),
        Text("fencepost.ledger.misfiring:_CONCERNED", "AND r.origin_key LIKE 'tick:%%' ", ""),
        tests="tests/ledger/test_misfiring.py::test_what_somebody_asked_for_is_never_too_late[sqlite-skip]",
    ),
    mutant(
        "busy nodes make ticks late",
        "a tick that waited because nodes were busy misfires when another node joins",
        Code("fencepost.ledger.misfiring:_Late._is_late", "return lives is None or not", "return True or not"),
        tests="tests/ledger/test_misfiring.py::TestBackPressure::"
        "test_tick_is_not_late_while_a_node_that_has_its_job_lives[sqlite-skip]",
    ),
    mutant(
        "late ticks begin one by one",
        "with misfire once, late ticks that were planned all begin, or lose their place to each other",
        Code("fencepost.ledger.misfiring:_Late._merge", "if len(late) < 2:", "if late:"),
        tests="tests/engine/test_serving.py::TestAnotherProgramLives::"
        "test_ticks_that_an_older_node_has_planned_meanwhile_become_one_run[sqlite-forbid]",
    ),
    mutant(
        "repeated hour goes back",
        "the latest due time is looked for among local times: due times of the repeated hour never run",
        Code(
            "fencepost.core.schedules.latest:last_due",
            "cron(expression, tz=tz).due_before(now_us + 1)",
            "cron(expression, tz=tz, dst='first').due_before(now_us + 1)",
        ),
        tests="tests/core/test_names_and_ticks.py::"
        "test_last_due_goes_forward_and_leaves_none_out_when_the_clock_is_changed[*/15 * * * *-2026-11-01]",
    ),
)
