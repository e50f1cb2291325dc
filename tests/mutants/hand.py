"""Hand-made mutants of the keepers and of the few guards around their SQL, each with a test that sees it.

What is between the quotes of `old` occurs once in its file. Whoever changes that line changes the row, too;
a test says so.
"""

from dataclasses import dataclass

KEEPERS = "tests/store/test_statements.py::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`old` becomes `new` in `file`, and `test` fails."""

    name: str
    file: str
    old: str
    new: str
    test: str


def _row(name: str, file: str, old: str, new: str, test: str) -> Row:
    return Row(name=name, file=f"runtime/{file}.py", old=old, new=new, test=test)


STEP = KEEPERS + "test_a_step_needs_the_epoch_the_owner_and_the_position_of_its_claim"
MAIL = KEEPERS + "test_a_step_that_lets_go_needs_the_mailbox_it_read_and_takes_nothing_up_without"
LEFT = KEEPERS + "test_a_step_that_lets_go_leaves_the_row_to_the_next"
LEASE = KEEPERS + "test_only_a_sweeper_takes_a_run_from_its_worker_and_only_when_the_lease_is_over"
CLAIMED = KEEPERS + "test_a_run_that_is_not_free_is_not_claimed"
DUE_SHORTLY = KEEPERS + "test_the_sweeper_leaves_a_moment_to_the_hints_of_a_start_and_a_ring"
REPLACED = "tests/store/test_leases.py::test_a_replaced_owner_can_neither_release_nor_quarantine"
SWEPT = KEEPERS + "test_the_sweeper_takes_the_oldest_first_and_none_that_somebody_has_locked"
SPARED = KEEPERS + "test_a_sweeper_may_send_hints_for_free_runs_alone"
WITHDRAWN = KEEPERS + "test_only_what_does_not_count_yet_can_be_withdrawn_and_only_of_its_run"
ORDER = KEEPERS + "test_signals_are_read_in_the_order_they_were_sent"
MOMENT = KEEPERS + "test_a_signal_counts_from_its_moment_on_and_the_next_one_is_told"
GATE = KEEPERS + "test_a_gate_is_decided_while_open_and_reopened_while_decided"
CLOSING = KEEPERS + "test_closing_is_for_gates_that_wait"
TAKING = KEEPERS + "test_only_decided_gates_take_effect_and_only_open_or_decided_ones_close"

WAITS = "tests/store/test_external_events.py::"
EVENTS = "tests/control/test_external_events.py::"
BEGIN = WAITS + "test_a_step_that_is_not_written_begins_no_wait"
END = WAITS + "test_a_step_ends_the_waits_of_its_own_run_at_its_places_alone"
TAKE = WAITS + "test_an_event_ends_a_wait_once_and_no_other"
ITS_OWN = WAITS + "test_a_run_has_its_own_waits"
STOPS = "tests/control/test_kill_switches.py::"
ON_AND_OFF = STOPS + "test_nothing_new_starts_and_the_run_stays_where_it_is"
STORED = "tests/store/test_blobs.py::"
RETENTION = "tests/upkeep/test_retention.py::"
WORKERS = "tests/store/test_workers.py::"
LIVE_KEYS = "tests/upkeep/test_startup.py::"

LEASES = (
    _row(
        "a step of an older epoch is written",
        "store/leases",
        "WHERE id = %(run)s AND epoch = %(epoch)s AND owner = %(owner)s AND position",
        "WHERE id = %(run)s AND owner = %(owner)s AND position",
        STEP,
    ),
    _row(
        "a step of somebody who was replaced is written",
        "store/leases",
        " AND owner = %(owner)s AND position",
        " AND position",
        STEP,
    ),
    _row(
        "a step is written wherever the run stands",
        "store/leases",
        " AND position = %(position)s - 1\n",
        "\n",
        STEP,
    ),
    _row(
        "a step lets go although a signal came",
        "store/leases",
        "AND (NOT %(strict)s OR mailbox = %(mailbox)s)",
        "",
        MAIL,
    ),
    _row(
        "no step is written while mail is unread",
        "store/leases",
        "AND (NOT %(strict)s OR mailbox = %(mailbox)s)",
        "AND mailbox = %(mailbox)s",
        KEEPERS + "test_a_step_that_goes_on_may_have_mail",
    ),
    _row(
        "a run that was let go of keeps its owner",
        "store/leases",
        "owner = CASE WHEN %(release)s THEN NULL ELSE owner END,\n        losses",
        "owner = owner,\n        losses",
        LEFT,
    ),
    _row(
        "a run that was let go of keeps its lease",
        "store/leases",
        "lease_until = CASE WHEN %(release)s THEN NULL ELSE lease_until END",
        "lease_until = lease_until",
        LEFT,
    ),
    _row(
        "a run that got on keeps its losses",
        "store/leases",
        "losses = CASE WHEN %(release)s THEN 0 ELSE losses END",
        "losses = losses",
        LEFT,
    ),
    _row(
        "a run that got on stays isolated",
        "store/leases",
        "isolated = isolated AND NOT %(release)s",
        "isolated = isolated",
        LEFT,
    ),
    _row(
        "nobody comes back when a wait is over",
        "store/leases",
        "THEN %(due)s::timestamptz ELSE",
        "THEN NULL ELSE",
        LEFT,
    ),
    _row(
        "the row does not know where its continuation is",
        "store/leases",
        "base = CASE WHEN %(suspends)s THEN %(position)s ELSE base END",
        "base = base",
        LEFT,
    ),
    _row(
        "a run that has ended does not say so",
        "store/leases",
        "ended_at = CASE WHEN %(ended)s THEN clock_timestamp() END",
        "ended_at = NULL",
        "tests/execution/test_waits.py::test_a_cancelled_run_closes_its_gates_and_never_starts_what_waited",
    ),
    _row(
        "a run that a worker has is hinted at",
        "upkeep/due_runs",
        "(owner IS NULL OR (%(may_take_over)s AND NOT {leases.LIVE}))",
        "(owner IS NULL OR %(may_take_over)s)",
        LEASE,
    ),
    _row(
        "a process hears of a run that it has no more",
        "store/leases",
        "ON runtime_run.id = held.run AND runtime_run.owner = held.owner",
        "ON runtime_run.id = held.run",
        KEEPERS + "test_a_heartbeat_finds_the_mailbox_of_what_the_process_still_has",
    ),
    _row(
        "a run that is not due is claimed",
        "store/leases",
        "            AND due_at <= clock_timestamp() + {RESEND_SECONDS + HINT_SECONDS} * interval '1 second'\n",
        "",
        "tests/store/test_leases.py::test_a_run_that_is_not_due_cannot_be_claimed",
    ),
    _row(
        "a claim waits for whoever has the row",
        "store/leases",
        "FOR NO KEY UPDATE SKIP LOCKED) free",
        "FOR NO KEY UPDATE) free",
        KEEPERS + "test_a_claim_does_not_wait_for_whoever_has_the_row",
    ),
    _row(
        "a parked run is claimed",
        "store/leases",
        " AND isolated = %(isolated)s AND status <> 'quarantined'\n",
        " AND isolated = %(isolated)s\n",
        CLAIMED,
    ),
    _row(
        "a stopped run is claimed",
        "store/leases",
        "            AND NOT ({kill_switches.OF_RUN})\n",
        "",
        KEEPERS + "test_a_stopped_run_is_not_claimed",
    ),
    _row(
        "an isolated run is claimed by an ordinary worker",
        "store/leases",
        "AND owner IS NULL AND isolated = %(isolated)s AND",
        "AND owner IS NULL AND",
        CLAIMED,
    ),
    _row(
        "a run that a worker has is claimed",
        "store/leases",
        "WHERE id = %(run)s AND owner IS NULL AND",
        "WHERE id = %(run)s AND",
        CLAIMED,
    ),
    _row(
        "a lease of the release before is not honoured",
        "store/leases",
        " ELSE lease_until >= {_DB_NOW} END",
        " ELSE false END",
        KEEPERS
        + "test_a_run_of_a_worker_of_the_release_before_is_taken_when_its_own_lease_is_over",
    ),
    _row(
        "a worker of the release before takes a run of this one",
        "store/leases",
        "'9000-01-01 00:00Z'",
        "'2000-01-01 00:00Z'",
        KEEPERS + "test_a_worker_of_the_release_before_leaves_a_run_of_this_one_alone",
    ),
    _row(
        "a worker whose lease is over counts as alive",
        "store/workers",
        " AND runtime_worker.lease_until >= clock_timestamp())",
        ")",
        LEASE,
    ),
    _row(
        "a loss is not noted",
        "store/workers",
        "    WHERE taken.was_lost\n",
        "    WHERE false\n",
        LEASE,
    ),
    _row(
        "what was written during a claim is not read again",
        "store/loading",
        "if whole else",
        "if True else",
        KEEPERS + "test_a_run_that_is_written_while_a_claim_reads_it_is_read_again",
    ),
    _row(
        "a run that a live process does not work on stays its own",
        "execution/heartbeat",
        "            leases.abandon(connection, run, owner)\n",
        "",
        "tests/execution/test_heartbeat.py::"
        "test_a_run_that_a_live_process_does_not_work_on_is_released",
    ),
    _row(
        "a claim keeps the epoch",
        "store/leases",
        "UPDATE runtime_run SET epoch = epoch + 1, owner = %(owner)s,",
        "UPDATE runtime_run SET owner = %(owner)s,",
        LEASE,
    ),
    _row(
        "a claim ends a pause",
        "store/leases",
        "WHEN free.status IN ('cancelling', 'paused') THEN free.status ELSE 'running' END",
        "WHEN free.status IN ('cancelling') THEN free.status ELSE 'running' END",
        "tests/control/test_pause.py::test_a_worker_that_dies_in_a_pause_starts_nothing",
    ),
    _row(
        "losses are not counted",
        "store/leases",
        "THEN losses + 1 ELSE 1 END",
        "THEN 1 ELSE 1 END",
        "tests/execution/test_crash_loops.py::"
        "test_what_costs_its_worker_again_and_again_is_quarantined_with_the_evidence",
    ),
    _row(
        "losses at any place are counted together",
        "store/leases",
        "WHEN taken.isolated OR taken.lost_at = taken.position THEN",
        "WHEN true THEN",
        KEEPERS + "test_losses_count_together_while_the_run_does_not_get_on",
    ),
    _row(
        "a run is released although a signal came",
        "store/leases",
        '"AND mailbox = %(mailbox)s",',
        '"",',
        KEEPERS + "test_a_release_needs_the_mailbox_and_backing_off_does_not",
    ),
    _row(
        "somebody who was replaced lets go of a run",
        "store/leases",
        "WHERE id = %(run)s AND epoch = %(epoch)s AND owner = %(owner)s {condition}",
        "WHERE id = %(run)s {condition}",
        REPLACED,
    ),
    _row(
        "backing off takes back a status that was written since",
        "store/leases",
        "status = CASE WHEN position = %(position)s THEN %(status)s ELSE status END",
        "status = %(status)s",
        KEEPERS + "test_backing_off_after_an_entry_leaves_its_status",
    ),
    _row(
        "a signal of later puts off what is due",
        "store/runs",
        "least(due_at, coalesce(%s, {DUE_SHORTLY}))",
        "coalesce(%s, {DUE_SHORTLY})",
        KEEPERS + "test_a_ring_makes_a_run_due_earlier_and_never_later",
    ),
    _row(
        "the sweeper leaves no time to the hint of a signal",
        "store/runs",
        "least(due_at, coalesce(%s, {DUE_SHORTLY}))",
        "least(due_at, coalesce(%s, clock_timestamp()))",
        DUE_SHORTLY,
    ),
    _row(
        "the sweeper leaves no time to the hint of a start",
        "store/runs",
        "%(origin)s::jsonb, {DUE_SHORTLY})",
        "%(origin)s::jsonb, clock_timestamp())",
        DUE_SHORTLY,
    ),
    _row(
        "a worker that a hint reaches waits for the sweeper",
        "store/leases",
        "clock_timestamp() + {RESEND_SECONDS + HINT_SECONDS} * interval",
        "clock_timestamp() + 0 * interval",
        DUE_SHORTLY,
    ),
    _row(
        "a signal wakes a parked run",
        "store/runs",
        "WHEN ended_at IS NULL AND status <> 'quarantined'\n",
        "WHEN ended_at IS NULL\n",
        "tests/execution/test_runner.py::test_a_decision_about_a_parked_run_does_not_make_it_due",
    ),
    _row(
        "a decision takes a run's row while another transaction has it",
        "store/runs",
        "held.ended_at IS NULL FOR NO KEY UPDATE OF held SKIP LOCKED)",
        "held.ended_at IS NULL)",
        "tests/approvals/test_races.py::"
        "test_rights_that_end_while_a_decision_waits_for_its_turn_are_gone",
    ),
    _row(
        "a decision does not raise the mailbox",
        "store/runs",
        "UPDATE runtime_run SET mailbox = mailbox + 1,\n        due_at = CASE",
        "UPDATE runtime_run SET\n        due_at = CASE",
        "tests/control/test_start.py::test_a_gate_is_settled_once_and_its_run_is_due_at_once",
    ),
    _row(
        "a decision that closes no request is written",
        "store/decisions",
        '("run", *required)',
        '("run",)',
        "tests/approvals/test_decide.py::test_a_decision_between_reading_and_writing_wins",
    ),
    _row(
        "a signal does not raise the mailbox",
        "store/runs",
        "UPDATE runtime_run SET mailbox = mailbox + 1,\n            due_at = CASE",
        "UPDATE runtime_run SET\n            due_at = CASE",
        "tests/control/test_pause.py::"
        "test_a_signal_that_holds_the_run_row_while_the_worker_suspends_is_not_lost",
    ),
    _row(
        "a run that is over takes signals",
        "store/runs",
        "    ended, status = row\n    if ended:\n",
        "    ended, status = row\n    if False:\n",
        KEEPERS + "test_a_ring_at_a_run_that_is_over_is_refused",
    ),
    _row(
        "what is due is hinted at every second",
        "upkeep/due_runs",
        "{leases.TAKE_OVER},\n            due_at = clock_timestamp() + %(pause)s * interval '1 second'\n",
        "{leases.TAKE_OVER}\n",
        "tests/store/test_leases.py::test_sweeping_hints_at_what_is_due_once_per_back_off",
    ),
    _row(
        "the sweeper takes the youngest first",
        "upkeep/due_runs",
        "ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
        "ORDER BY due_at DESC LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
        SWEPT,
    ),
    _row(
        "the sweeper waits for whoever has a row",
        "upkeep/due_runs",
        "ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
        "ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE",
        SWEPT,
    ),
    _row(
        "the sweeper may_take_over after its own reconnect",
        "upkeep/due_runs",
        "(owner IS NULL OR (%(may_take_over)s AND NOT {leases.LIVE}))",
        "(owner IS NULL OR NOT {leases.LIVE})",
        SPARED,
    ),
    _row(
        "the sweeper waits with nobody's runs too",
        "upkeep/due_runs",
        "(owner IS NULL OR (%(may_take_over)s AND NOT {leases.LIVE}))",
        "(%(may_take_over)s AND NOT {leases.LIVE})",
        SPARED,
    ),
)

JOURNAL = (
    _row(
        "an entry of another worker counts as ours",
        "store/journal",
        "row is not None and row[0] == sealed.commit_id",
        "row is not None",
        KEEPERS + "test_a_step_whose_answer_was_cut_off_is_known_as_written",
    ),
    _row(
        "a step whose answer was cut off is lost",
        "store/steps",
        "if row == (1,) or written(connection, step):",
        "if row == (1,):",
        KEEPERS + "test_a_step_whose_answer_was_cut_off_is_known_as_written",
    ),
    _row(
        "a signal that came is taken for a lost lease",
        "store/steps",
        "return Result.NEW_SIGNALS if ours else Result.LOST",
        "return Result.LOST",
        MAIL,
    ),
    _row(
        "entries are not verified",
        "store/journal",
        "if not verifies(mac, key_id, str(count), previous, body):",
        "if False:",
        "tests/security/test_tampering.py::test_an_edited_entry_parks_the_run",
    ),
    _row(
        "the end of the journal is not held against the row",
        "store/journal",
        "if (last, now.position, now.head) != (position, position, head):",
        "if False:",
        "tests/security/test_tampering.py::test_a_changed_end_parks_the_run",
    ),
    _row(
        "entries are loaded in any order",
        "store/loading",
        "ORDER BY position) ordered) e",
        "ORDER BY mac) ordered) e",
        "tests/security/test_tampering.py::test_an_untouched_run_goes_on",
    ),
    _row(
        "entries are read in any order",
        "store/journal",
        "WHERE run_id = %s ORDER BY position\n",
        "WHERE run_id = %s ORDER BY mac\n",
        "tests/control/test_verification.py::test_a_run_is_sound_from_its_start_to_its_end",
    ),
    _row(
        "one entry too few is removed",
        "store/journal",
        "WHERE run_id = %s AND position <= %s",
        "WHERE run_id = %s AND position < %s",
        "tests/upkeep/test_retention.py::test_decision_and_digest_stay_verifiable",
    ),
    _row(
        "a month in use is dropped",
        "upkeep/partitions",
        "SELECT NOT EXISTS (SELECT FROM {})",
        "SELECT true OR NOT EXISTS (SELECT FROM {})",
        "tests/upkeep/test_partitions.py::test_a_month_with_an_entry_stays",
    ),
    _row(
        "this month is dropped when it is empty",
        "upkeep/partitions",
        "            AND c.relname < 'runtime_journalentry_' || to_char(\n"
        "                (clock_timestamp() - interval '1 day') AT TIME ZONE 'UTC', 'YYYY_MM')\n",
        "",
        "tests/upkeep/test_partitions.py::test_a_month_that_is_over_and_empty_is_dropped_and_no_other",
    ),
    _row(
        "dropping a month waits for whoever writes",
        "upkeep/partitions",
        "SET LOCAL lock_timeout = '500ms'\")\n            found",
        "SET LOCAL lock_timeout = '20s'\")\n            found",
        "tests/upkeep/test_partitions.py::test_dropping_waits_for_nobody",
    ),
)

SIGNALS = (
    _row(
        "a step that is not written takes its signals all the same",
        "store/signals",
        "WHERE id = ANY(%(signals)s) AND run_id = (SELECT id FROM run)",
        "WHERE id = ANY(%(signals)s)",
        MAIL,
    ),
    _row(
        "a decision that counts can be taken back",
        "store/signals",
        "WHERE run_id = %s AND kind = %s AND effective_at > clock_timestamp() ORDER BY id",
        "WHERE run_id = %s AND kind = %s ORDER BY id",
        WITHDRAWN,
    ),
    _row(
        "to take one decision back takes all of them",
        "store/signals",
        "and gate in (None, one.gate)]",
        "]",
        WITHDRAWN,
    ),
    _row(
        "a decision counts before its time",
        "store/signals",
        "s.effective_at, s.effective_at <= clock_timestamp()",
        "s.effective_at, s.effective_at IS NOT NULL",
        MOMENT,
    ),
    _row(
        "a decision counts before its time if its run is loaded with it",
        "store/loading",
        "effective_at <= clock_timestamp() ORDER BY id",
        "effective_at IS NOT NULL ORDER BY id",
        "tests/execution/test_late_outcomes.py::test_a_decision_that_can_be_undone_stays",
    ),
    _row(
        "nobody knows when the next signal counts",
        "store/signals",
        "next=min((at for _, at in later), default=None)",
        "next=None",
        MOMENT,
    ),
    _row(
        "the last signal of several is read first",
        "store/signals",
        "WHERE r.id = %s ORDER BY s.id",
        "WHERE r.id = %s ORDER BY s.id DESC",
        ORDER,
    ),
    _row(
        "the first word on a pause holds",
        "store/signals",
        "kind = ANY(%s) ORDER BY id DESC LIMIT 1",
        "kind = ANY(%s) ORDER BY id LIMIT 1",
        ORDER,
    ),
    _row(
        "the window of an undo is forgotten",
        "store/signals",
        "coalesce(%(effective_at)s::timestamptz, clock_timestamp()) FROM decided",
        "least(%(effective_at)s::timestamptz, clock_timestamp()) FROM decided",
        WITHDRAWN,
    ),
)

GATES = (
    _row(
        "a gate is decided twice",
        "store/gates",
        "WHERE id = %(gate)s AND state = 'open' AND run_id",
        "WHERE id = %(gate)s AND run_id",
        GATE,
    ),
    _row(
        "a gate that took effect is opened again",
        "store/gates",
        "decided_at = NULL WHERE id = %s AND state = 'decided'",
        "decided_at = NULL WHERE id = %s",
        GATE,
    ),
    _row(
        "no statement looks whether a gate was decided",
        "store/decisions",
        "        SELECT (SELECT id FROM run), 1 / ({counts})\n",
        "        SELECT (SELECT id FROM run), ({counts})\n",
        GATE,
    ),
    _row(
        "a gate that was closed takes effect",
        "store/gates",
        "WHERE id = ANY(%(g_taken)s) AND state = 'decided' AND",
        "WHERE id = ANY(%(g_taken)s) AND",
        TAKING,
    ),
    _row(
        "a gate that took effect is closed",
        "store/gates",
        "WHERE id = ANY(%(g_closed)s) AND state IN ('open', 'decided') AND",
        "WHERE id = ANY(%(g_closed)s) AND",
        TAKING,
    ),
    _row(
        "a decided gate stays when its run ends",
        "store/gates",
        "WHERE id = ANY(%(g_closed)s) AND state IN ('open', 'decided') AND",
        "WHERE id = ANY(%(g_closed)s) AND state IN ('open') AND",
        TAKING,
    ),
    _row(
        "cancelling closes what was decided",
        "store/gates",
        "WHERE run_id = %s AND state = 'open' RETURNING id",
        "WHERE run_id = %s RETURNING id",
        CLOSING,
    ),
    _row(
        "cancelling closes the gates of every run",
        "store/gates",
        "WHERE run_id = %s AND state = 'open' RETURNING id",
        "WHERE (run_id = %s OR true) AND state = 'open' RETURNING id",
        CLOSING,
    ),
    _row(
        "withdrawing closes what took effect",
        "store/gates",
        "WHERE id = ANY(%s) AND state = 'decided'",
        "WHERE id = ANY(%s)",
        CLOSING,
    ),
)

WAITING = (
    _row(
        "a step that is not written begins a wait",
        "store/waits",
        "    SELECT run.id, w.frame, w.call, w.event, w.match::jsonb, w.until\n    FROM run, unnest(",
        "    SELECT %(run)s, w.frame, w.call, w.event, w.match::jsonb, w.until\n    FROM unnest(",
        BEGIN,
    ),
    _row(
        "a step ends the waits of other runs",
        "store/waits",
        "WHERE runtime_wait.run_id = run.id AND runtime_wait.frame",
        "WHERE runtime_wait.frame",
        END,
    ),
    _row(
        "a step ends the waits of other frames",
        "store/waits",
        " AND runtime_wait.frame = o.frame",
        "",
        END,
    ),
    _row(
        "a step ends the waits of other calls",
        "store/waits",
        " AND runtime_wait.call = o.call",
        "",
        END,
    ),
    _row(
        "an event of any name ends a wait",
        "store/waits",
        "WHERE event = %s AND %s::jsonb @> match",
        "WHERE (event = %s OR true) AND %s::jsonb @> match",
        EVENTS + "test_only_an_event_of_that_name_that_contains_the_match_ends_it",
    ),
    _row(
        "an event with any data ends a wait",
        "store/waits",
        "WHERE event = %s AND %s::jsonb @> match",
        "WHERE event = %s AND (%s::jsonb @> match OR true)",
        EVENTS + "test_only_an_event_of_that_name_that_contains_the_match_ends_it",
    ),
    _row(
        "an event has to be all that a wait asks for and nothing more",
        "store/waits",
        "WHERE event = %s AND %s::jsonb @> match",
        "WHERE event = %s AND %s::jsonb <@ match",
        EVENTS + "test_a_run_that_waits_for_an_event_holds_nothing_and_goes_on_with_it",
    ),
    _row(
        "the runs of an event come in any order",
        "store/waits",
        "ORDER BY run_id, frame, call LIMIT %s",
        "ORDER BY run_id DESC, frame, call LIMIT %s",
        WAITS + "test_an_event_takes_hold_of_its_runs_in_their_order",
    ),
    _row(
        "an event looks at every wait there is",
        "store/waits",
        "ORDER BY run_id, frame, call LIMIT %s",
        "ORDER BY run_id, frame, call LIMIT 1 + 0 * %s + 9",
        WAITS + "test_no_more_waits_are_looked_at_than_one_event_may_end",
    ),
    _row(
        "an event ends a wait that is over already",
        "store/waits",
        "    return done.rowcount == 1\n",
        "    return True\n",
        TAKE,
    ),
    _row(
        "an event ends every wait of a frame",
        "store/waits",
        "WHERE run_id = %s AND frame = %s AND call = %s",
        "WHERE run_id = %s AND frame = %s AND (call = %s OR true)",
        TAKE,
    ),
    _row(
        "an event ends the waits of another frame",
        "store/waits",
        "WHERE run_id = %s AND frame = %s AND call = %s",
        "WHERE run_id = %s AND (frame = %s OR true) AND call = %s",
        TAKE,
    ),
    _row(
        "an event ends the waits of another run",
        "store/waits",
        "WHERE run_id = %s AND frame = %s AND call = %s",
        "WHERE (run_id = %s OR true) AND frame = %s AND call = %s",
        TAKE,
    ),
    _row(
        "a run that leaves ends the waits of all",
        "store/waits",
        '"DELETE FROM runtime_wait WHERE run_id = %s", (run,)',
        '"DELETE FROM runtime_wait WHERE run_id = %s OR true", (run,)',
        ITS_OWN,
    ),
    _row(
        "a run has the waits of all",
        "store/waits",
        '"SELECT frame, call FROM runtime_wait WHERE run_id = %s", (run,)',
        '"SELECT frame, call FROM runtime_wait WHERE run_id = %s OR true", (run,)',
        ITS_OWN,
    ),
    _row(
        "another event of a known id is taken for the same",
        "control/external_events",
        "        if known.digest != digest:\n",
        "        if False:\n",
        EVENTS + "test_an_id_counts_once",
    ),
    _row(
        "an event ends more waits than it may",
        "control/external_events",
        "    if len(found) > MAX_MATCHED:\n",
        "    if False:\n",
        EVENTS + "test_more_waits_than_one_event_may_end_are_left_alone",
    ),
    _row(
        "an event ends as many waits as it may and is refused",
        "control/external_events",
        "    if len(found) > MAX_MATCHED:\n",
        "    if len(found) >= MAX_MATCHED:\n",
        WAITS + "test_an_event_may_end_as_many_waits_as_that",
    ),
    _row(
        "an event ends a wait of a run that is over",
        "control/external_events",
        "    except RunEnded:\n        return False\n",
        "    except RunEnded:\n        return True\n",
        WAITS + "test_an_event_ends_no_wait_of_a_run_that_is_over",
    ),
    _row(
        "an event is sent without the run's row",
        "control/external_events",
        "        runs.ring(connection, run)\n",
        "        pass\n",
        WAITS + "test_an_event_takes_hold_of_its_runs_in_their_order",
    ),
    _row(
        "a run hears of an event that ended nothing",
        "control/external_events",
        "if wait.run in live and waits.take(connection, wait)]",
        "if wait.run in live and (waits.take(connection, wait) or True)]",
        EVENTS + "test_an_event_that_comes_while_the_end_is_being_written_ends_nothing",
    ),
    _row(
        "what an event ended is counted before it ends",
        "control/external_events",
        "external_events.count(connection, id, len(ended))",
        "external_events.count(connection, id, len(found))",
        EVENTS + "test_an_event_that_comes_while_the_end_is_being_written_ends_nothing",
    ),
    _row(
        "an event whose id is used is a new one",
        "store/external_events",
        "ON CONFLICT (id) DO NOTHING",
        "ON CONFLICT (id) DO UPDATE SET waits = 0",
        EVENTS + "test_an_id_counts_once",
    ),
    _row(
        "an event counts for all of them",
        "store/external_events",
        "SET waits = %s WHERE id = %s",
        "SET waits = %s WHERE id = %s OR true",
        WAITS + "test_an_event_counts_for_itself_what_it_ended",
    ),
    _row(
        "ids are forgotten at once",
        "store/external_events",
        "WHERE at < clock_timestamp() - %s * interval '1 day' LIMIT %s",
        "WHERE (true OR at < clock_timestamp() - %s * interval '1 day') LIMIT %s",
        EVENTS + "test_ids_are_known_for_thirty_days",
    ),
    _row(
        "all old ids are forgotten in one statement",
        "store/external_events",
        "* interval '1 day' LIMIT %s",
        "* interval '1 day' LIMIT 9 + %s",
        WAITS + "test_only_so_many_ids_are_forgotten_at_once",
    ),
)

STOPPED = (
    _row(
        "a stop of one agent stops all of them",
        "store/kill_switches",
        "WHERE lifted_at IS NULL AND runtime_stop.agent IN ('', runtime_run.agent)",
        "WHERE lifted_at IS NULL",
        STOPS + "test_a_run_of_another_agent_goes_on",
    ),
    _row(
        "a stop of every agent stops none",
        "store/kill_switches",
        "WHERE lifted_at IS NULL AND runtime_stop.agent IN ('', runtime_run.agent)",
        "WHERE lifted_at IS NULL AND runtime_stop.agent IN (runtime_run.agent)",
        ON_AND_OFF,
    ),
    _row(
        "a stop that was lifted goes on",
        "store/kill_switches",
        "WHERE lifted_at IS NULL AND runtime_stop.agent IN ('', runtime_run.agent)",
        "WHERE runtime_stop.agent IN ('', runtime_run.agent)",
        ON_AND_OFF,
    ),
    _row(
        "a worker is told of stops that were lifted",
        "store/kill_switches",
        "SELECT agent FROM runtime_stop WHERE lifted_at IS NULL)",
        "SELECT agent FROM runtime_stop)",
        ON_AND_OFF,
    ),
    _row(
        "a stopped run hears no signal",
        "store/kill_switches",
        "    AND NOT EXISTS (SELECT FROM runtime_signal WHERE run_id = runtime_run.id)\n",
        "",
        STOPS + "test_a_stopped_run_can_be_cancelled",
    ),
    _row(
        "the signal of any run starts a stopped one",
        "store/kill_switches",
        "SELECT FROM runtime_signal WHERE run_id = runtime_run.id)",
        "SELECT FROM runtime_signal)",
        STOPS + "test_the_signal_of_another_run_starts_no_stopped_one",
    ),
    _row(
        "a stop is lifted twice",
        "store/kill_switches",
        "WHERE id = %(stop)s AND lifted_at IS NULL RETURNING",
        "WHERE id = %(stop)s RETURNING",
        STOPS + "test_a_stop_is_put_once_and_lifted_once",
    ),
)

CONTINUATIONS = (
    _row(
        "a continuation is not verified",
        "store/continuations",
        "if not keyring.verify(keyring.CONTINUATION, Seal(mac=mac, key_id=key_id), *_parts(run, body)):",
        "if False:",
        "tests/security/test_tampering.py::test_every_digit_of_its_mac_counts",
    ),
    _row(
        "an older continuation is gone on from",
        "store/continuations",
        "if continuation.position != base:",
        "if False:",
        "tests/security/test_tampering.py::"
        "test_an_older_continuation_does_not_take_the_place_of_the_last",
    ),
    _row(
        "a continuation leaves out what entries tell that may be removed",
        "core/conversations",
        "            case kind if kind not in _SILENT:\n                self.whole = False\n",
        "            case _:\n                pass\n",
        "tests/core/test_conversations.py::test_what_is_not_told_here_is_not_left_out",
    ),
    _row(
        "a base leaves out what entries tell that may be removed",
        "execution/commit",
        "        if pins:\n            return Brief(state=now)\n",
        "",
        "tests/execution/test_compaction.py::"
        "test_it_writes_the_continuation_that_its_journal_may_begin_at",
    ),
    _row(
        "a continuation leaves out what its entries do not tell",
        "core/conversations",
        "if self.messages != messages or self.calls != calls:",
        "if False:",
        "tests/core/test_conversations.py::"
        "test_a_state_that_its_entries_do_not_tell_is_not_left_out",
    ),
    _row(
        "entries that tell something else are taken for what was left out",
        "core/conversations",
        "if not self.whole or lengths != {",
        "if not self.whole or {} == {",
        "tests/core/test_conversations.py::"
        "test_entries_that_tell_another_number_of_messages_are_folded",
    ),
    _row(
        "an entry that was not written is told of",
        "execution/commit",
        "if self._conversations.position > len(self._texts):",
        "if False:",
        "tests/store/test_sizes.py::test_a_step_that_is_built_again_is_read_again",
    ),
    _row(
        "what a tool returned passes for a reference",
        "core/references",
        "return place[_ITSELF]",
        "return _value(place[_ITSELF][_REFERENCE], entry_of)",
        "tests/core/test_references.py::test_what_looks_like_a_reference_is_read_as_it_was",
    ),
    _row(
        "a run that is over keeps its continuation",
        "store/continuations",
        "WHERE run_id = (SELECT id FROM run WHERE %(ended)s)",
        "WHERE run_id = (SELECT id FROM run WHERE false)",
        "tests/control/test_verification.py::test_a_run_is_sound_from_its_start_to_its_end",
    ),
    _row(
        "a content that somebody refers to is collected",
        "store/blobs",
        " AND NOT EXISTS (\n                SELECT FROM runtime_contentuse u WHERE u.content_id = c.digest)",
        "",
        STORED + "test_only_what_no_run_refers_to_is_collected_and_not_at_once",
    ),
    _row(
        "a content that was used just now is collected",
        "store/blobs",
        "used_at < clock_timestamp() - interval '1 hour' AND NOT",
        "NOT",
        STORED + "test_only_what_no_run_refers_to_is_collected_and_not_at_once",
    ),
    _row(
        "a content that is used again is as old as before",
        "store/blobs",
        "AS c(digest, body) ORDER BY c.digest\n"
        "    ON CONFLICT (digest) DO UPDATE SET used_at = clock_timestamp()",
        "AS c(digest, body) ORDER BY c.digest\n    ON CONFLICT (digest) DO NOTHING",
        STORED + "test_a_content_that_is_used_again_is_not_collected",
    ),
    _row(
        "a step that is not written stores its contents",
        "store/blobs",
        "FROM run, unnest(%(c_digests)s::text[], %(c_texts)s::text[])",
        "FROM unnest(%(c_digests)s::text[], %(c_texts)s::text[])",
        STORED + "test_a_step_that_is_not_written_stores_nothing",
    ),
    _row(
        "a run that forgets its contents forgets those of all",
        "store/blobs",
        '"DELETE FROM runtime_contentuse WHERE run_id = %s", (run,)',
        '"DELETE FROM runtime_contentuse WHERE run_id = %s OR true", (run,)',
        RETENTION + "test_a_content_that_another_run_refers_to_stays",
    ),
    _row(
        "a continuation is gone on from whose row says something else",
        "store/continuations",
        "    if (continuation.run, continuation.position) != (run, position):\n",
        "    if False:\n",
        "tests/control/test_verification.py::test_whatever_else_is_changed_is_found",
    ),
    _row(
        "the second continuation of a run is not written",
        "store/continuations",
        "    WHERE %(c_body)s::text IS NOT NULL\n"
        "    ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, body = excluded.body,\n"
        "        mac = excluded.mac, key_id = excluded.key_id\n",
        "    WHERE %(c_body)s::text IS NOT NULL\n    ON CONFLICT (run_id) DO NOTHING\n",
        "tests/control/test_verification.py::test_a_run_is_sound_from_its_start_to_its_end",
    ),
    _row(
        "a base is written over and keeps the seal of the one before",
        "store/continuations",
        "mac = excluded.mac, key_id = excluded.key_id, at = clock_timestamp()",
        "mac = runtime_base.mac, key_id = excluded.key_id, at = clock_timestamp()",
        "tests/execution/test_compaction.py::"
        "test_it_writes_the_continuation_that_its_journal_may_begin_at",
    ),
)

REMOVED = (
    _row(
        "the mark of a removed journal is not verified",
        "store/pruning",
        "if not keyring.verify(keyring.JOURNAL, Seal(mac=row[3], key_id=row[4]), *_parts(run, mark)):",
        "if False:",
        RETENTION + "test_a_forged_mark_of_a_removed_journal_is_found",
    ),
    _row(
        "a rule for another agent counts",
        "upkeep/retention",
        "WHERE (rule.agent IS NULL OR rule.agent = run.agent)",
        "WHERE true",
        RETENTION + "test_age_status_and_agent_decide",
    ),
    _row(
        "a rule for another status counts",
        "upkeep/retention",
        "AND (rule.status IS NULL OR rule.status = run.status)",
        "AND true",
        RETENTION + "test_age_status_and_agent_decide",
    ),
    _row(
        "the last rule that fits counts",
        "upkeep/retention",
        "ORDER BY rule.place LIMIT 1)",
        "ORDER BY rule.place DESC LIMIT 1)",
        RETENTION + "test_age_status_and_agent_decide",
    ),
    _row(
        "the age of a run does not count",
        "upkeep/retention",
        "    AND run.ended_at < clock_timestamp() - {_DAYS} * interval '1 day'\n",
        "    AND {_DAYS} IS NOT NULL\n",
        RETENTION + "test_age_status_and_agent_decide",
    ),
    _row(
        "a run that could not be removed is tried for ever",
        "upkeep/retention",
        "AND (%(after)s::timestamptz IS NULL OR run.ended_at > %(after)s)",
        "AND (%(after)s::timestamptz IS NULL OR true)",
        RETENTION + "test_what_cannot_be_removed_does_not_stop_the_rest",
    ),
    _row(
        "a run that goes on loses its payloads",
        "store/runs",
        "WHERE id = %s AND ended_at IS NOT NULL AND removed_at IS NULL\n",
        "WHERE id = %s AND removed_at IS NULL\n",
        RETENTION + "test_a_run_that_goes_on_loses_nothing",
    ),
    _row(
        "a run loses its payloads twice",
        "store/runs",
        "WHERE id = %s AND ended_at IS NOT NULL AND removed_at IS NULL\n",
        "WHERE id = %s AND ended_at IS NOT NULL\n",
        RETENTION + "test_a_run_loses_its_payloads_once",
    ),
    _row(
        "a key is asked for that only runs that are over need",
        "upkeep/startup",
        "ON runtime_run.id = kept.run_id AND ended_at IS NULL",
        "ON runtime_run.id = kept.run_id",
        LIVE_KEYS + "test_what_a_run_that_is_over_was_signed_with_is_not_asked_for",
    ),
    _row(
        "a key is not asked for that only a journal needs",
        "upkeep/startup",
        "WHERE ended_at IS NULL AND status <> 'quarantined' AND base < runtime_run.position",
        "WHERE ended_at IS NULL AND status <> 'quarantined' AND base > runtime_run.position",
        LIVE_KEYS + "test_a_key_that_a_live_run_needs_is_named",
    ),
    _row(
        "a worker that beats is as old as its first beat",
        "store/workers",
        "SET beat_at = clock_timestamp(), hung",
        "SET beat_at = runtime_worker.beat_at, hung",
        WORKERS + "test_a_worker_that_beats_again_is_alive",
    ),
    _row(
        "a worker is forgotten while it lives",
        "store/workers",
        "WHERE beat_at < clock_timestamp() - interval '1 day'",
        "WHERE beat_at < clock_timestamp()",
        WORKERS + "test_only_workers_and_sweepers_long_gone_are_forgotten",
    ),
)

GUARDS = (
    _row(
        "more calls start than there are slots",
        "execution/effects/pool",
        "            if self._free:\n",
        "            if True:\n",
        "tests/system/fault_injection/test_slots.py::"
        "test_ten_parallel_writes_on_four_slots_killed_leave_at_most_four_in_doubt",
    ),
    _row(
        "a write that raised is tried again",
        "core/retries",
        "    if _terms(call).effect is EffectClass.WRITE:\n",
        "    if False:\n",
        "tests/agents/test_doubts.py::"
        "test_a_write_that_raises_a_read_timeout_is_started_once_and_in_doubt",
    ),
    _row(
        "a write whose worker died is made again",
        "core/retries",
        "if is_write or _terms(call).effect is EffectClass.WRITE:",
        "if is_write:",
        "tests/execution/test_versions.py::"
        "test_a_class_changed_from_write_to_read_while_down_is_not_re_run",
    ),
    _row(
        "a transaction commits whether its step was written or not",
        "execution/effects/transactional",
        "            raise LeaseLost\n",
        "            pass\n",
        "tests/execution/test_waits.py::"
        "test_a_transactional_tool_that_overruns_and_commits_late_leaves_one_row",
    ),
)

ROWS = (*LEASES, *JOURNAL, *SIGNALS, *GATES, *WAITING, *STOPPED, *CONTINUATIONS, *REMOVED, *GUARDS)
