#!/usr/bin/env python3
"""Writes tests/mutants/*.patch from the list below, so that a mutant follows when the function it breaks is edited.

Each mutant removes one thing that a test guards: (name, file or files below sql/, what is there, what takes its place, tests
that must go red). Run this after editing a function; it complains when a mutant no longer applies.
"""

import difflib
import pathlib

HERE = pathlib.Path(__file__).parent
SQL = HERE.parent.parent / "sql"

MUTANTS = [
    ("transition_without_table", "shared/_transition.sql",
     "when t.to_status is null or (t.needs_budget and j.attempt_count >= j.max_attempts) then 'illegal'",
     "when false then 'illegal'",
     ["state_machine::of_all_64_pairs_exactly_the_contracts_steps_pass_each_with_one_event"]),
    ("transition_without_budget", "shared/_transition.sql",
     "(t.needs_budget and j.attempt_count >= j.max_attempts)", "false",
     ["state_machine::a_failed_job_without_budget_cannot_go_back_to_the_line"]),
    ("transition_without_event", "shared/_transition.sql",
     "      from moved m\n     cross join lateral (",
     "      from (select * from moved where to_status <> 'uploading') m\n     cross join lateral (",
     ["state_machine::a_straight_run_has_six_events"]),
    ("fence_without_token", "shared/_transition.sql",
     [("(j.claim_version, j.claim_token, j.worker_id)", "(j.claim_version, j.worker_id)"),
      ("(s.claim_version, s.claim_token, s.worker_id)", "(s.claim_version, s.worker_id)"),
      (" and j.claim_token = d.claim_token", "")], None,
     ["ownership::the_right_version_with_a_wrong_token_or_worker_is_not_heard",
      "failover::the_owner_of_a_lost_claim_is_refused_although_its_version_is_current"]),
    ("fence_without_version", "shared/_transition.sql",
     [("(j.claim_version, j.claim_token, j.worker_id)", "(j.claim_token, j.worker_id)"),
      ("(s.claim_version, s.claim_token, s.worker_id)", "(s.claim_token, s.worker_id)"),
      ("(j.claim_version = d.claim_version and ", "(")], None,
     ["ownership::the_right_version_with_a_wrong_token_or_worker_is_not_heard"]),
    ("fence_without_worker", "shared/_transition.sql",
     [("(j.claim_version, j.claim_token, j.worker_id)", "(j.claim_version, j.claim_token)"),
      ("(s.claim_version, s.claim_token, s.worker_id)", "(s.claim_version, s.claim_token)"),
      (" and j.worker_id = d.worker_id)", ")")], None,
     ["ownership::the_right_version_with_a_wrong_token_or_worker_is_not_heard"]),
    ("no_fence_at_all", "shared/_transition.sql",
     [("when s.claim_version is not null\n", "when false\n"),
      ("       and (d.claim_version is null\n", "       and (true\n")], None,
     ["ownership::a_worker_whose_job_was_reclaimed_is_not_heard",
      "ownership::an_old_claim_is_stale_even_for_the_worker_that_holds_the_new_one"]),
    ("null_opens_the_fence", "inbox/advance_jobs_v1.sql", "coalesce(s.claim_version, 0)", "s.claim_version",
     ["ownership::a_fence_of_nulls_is_not_heard"]),
    ("heartbeat_without_token", "inbox/heartbeat_jobs_v1.sql", "       and j.claim_token = s.claim_token\n", "",
     ["ownership::the_right_version_with_a_wrong_token_or_worker_is_not_heard"]),
    ("heartbeat_refused_past_the_lease", "inbox/heartbeat_jobs_v1.sql",
     "       and j.worker_id = p_worker_id\n",
     "       and j.worker_id = p_worker_id and j.lease_expires_at >= v_now\n",
     ["ownership::a_worker_whose_lease_lapsed_but_was_not_taken_may_still_speak"]),
    # Entries and jobs are both locked; either lock alone keeps a claim exclusive.
    ("claim_without_locks", "inbox/_sort_entries.sql + line/_pick_entries.sql",
     [("       for no key update skip locked\n", ""), ("     for update skip locked;", ";")], None,
     ["ownership::sixteen_connections_drain_five_thousand_jobs_each_claimed_once"]),
    ("claim_waits_for_locks", "inbox/_sort_entries.sql",
     "for no key update skip locked", "for no key update",
     ["ownership::a_job_that_somebody_holds_is_passed_over_and_stays_in_the_line"]),
    ("claim_drops_what_others_hold", "inbox/claim_jobs_v1.sql",
     " where e.verdict <> 'held'", "",
     ["ownership::a_job_that_somebody_holds_is_passed_over_and_stays_in_the_line"]),
    ("claim_without_limit", "line/_pick_entries.sql", "   limit p_limit\n", "",
     ["ownership::sixteen_connections_drain_five_thousand_jobs_each_claimed_once"]),
    ("claim_counts_an_attempt", "shared/_transition.sql",
     "j.attempt_count + (d.to_status = 'fetching')::integer",
     "j.attempt_count + (d.to_status = 'claimed')::integer",
     ["reclaim::a_claim_handed_back_unstarted_costs_no_attempt",
      "ownership::a_claim_sets_owner_lease_heartbeat_and_a_new_version_but_no_attempt"]),
    ("key_taken_over_always", "inbox/_enqueue_jobs.sql", "     where k.expires_at <= p_now\n", "",
     ["idempotency::sixty_four_concurrent_enqueues_with_one_key_make_one_job_and_one_answer",
      "cut_off::an_answer_lost_after_commit_is_harmless_for_a_requester"]),
    ("key_never_freed", "inbox/_enqueue_jobs.sql", "     where k.expires_at <= p_now\n", "     where false\n",
     ["idempotency::expiry_frees_a_key"]),
    ("hash_not_compared", "inbox/_enqueue_jobs.sql",
     "(k.request_hash, k.hash_version) = (j.request_hash, j.hash_version)", "true",
     ["idempotency::another_hash_is_a_conflict_that_names_the_stored_one"]),
    ("rejected_request_keeps_the_key", "inbox/_enqueue_jobs.sql",
     "   where v_complaints[j.ordinal] is null;", "   where true;",
     ["idempotency::in_a_batch_each_item_gets_its_own_answer"]),
    ("nobody_reclaims", "inbox/_reclaim_jobs.sql", "  if v_lapsed is not null then", "  if false then",
     ["reclaim::a_lapsed_lease_is_reclaimed_by_whoever_comes_by",
      "cut_off::a_claim_whose_answer_was_lost_comes_back_by_itself"]),
    ("reclaim_forgets_the_budget", "inbox/_reclaim_jobs.sql",
     "j.attempt_count >= j.max_attempts or (", "(",
     ["reclaim::a_lapse_on_the_last_attempt_ends_in_failed_and_dead_letter"]),
    ("reclaim_never_tires", "inbox/_reclaim_jobs.sql", "j.unstarted_expiries >= 19", "j.unstarted_expiries >= 999",
     ["reclaim::twenty_leases_that_lapse_unstarted_end_a_job"]),
    ("reclaim_forgets_renewed_leases", "inbox/_reclaim_jobs.sql",
     "   where j.job_id = any (v_renewed)\n", "   where false\n",
     ["reclaim::leases_are_filed_again_or_forgotten"]),
    ("reclaim_does_not_wait_after_a_gap", "line/_tick.sql",
     "if p_age_ms > p_lease_seconds * 1000 / 3 and p_age_ms < v_now_ms then", "if false then",
     ["reclaim::after_a_gap_in_ticks_reclaim_waits_one_lease"]),
    ("dead_letter_without_failed", "inbox/_end_or_requeue.sql",
     "    where s.to_status = 'dead_letter' and s.job_id = any (v_ok)\n", "    where false\n",
     ["reclaim::a_failure_on_the_last_attempt_ends_in_failed_and_dead_letter"]),
    ("shutdown_gives_back_for_ever", "inbox/release_jobs_v1.sql", "j.shutdown_releases < 3", "true",
     ["reclaim::a_shutdown_gives_its_attempt_back_three_times"]),
    ("requeued_without_entry", "line/_put_in_line.sql",
     "   where e.run_at is null or e.run_at <= v_now;", "   where false;",
     ["reclaim::a_claim_handed_back_unstarted_costs_no_attempt"]),
    ("backoff_without_jitter", "shared/_backoff_ms.sql", "* (0.8 + 0.4 * p_random)", "",
     ["backoff::the_jitter_spreads", "backoff::failures_are_given_different_jitter"]),
    ("backoff_without_cap", "shared/_backoff_ms.sql", "least(p_cap_ms, ", "greatest(0, ",
     ["backoff::waits_stay_within_their_bounds_for_any_setting"]),
    ("429_like_any_other", "inbox/fail_jobs_v1.sql", "then 4 else 0 end", "then 0 else 0 end",
     ["retry::waits_grow_with_the_attempt_and_429_starts_four_steps_higher"]),
    ("retry_after_ignored", "inbox/fail_jobs_v1.sql",
     "least(coalesce(s.retry_after_seconds, 0), 86400)", "0",
     ["retry::retry_after_is_a_lower_bound"]),
    ("delayed_is_ready_at_once", "line/_put_in_line.sql",
     [("   where e.run_at > v_now;", "   where false;"),
      ("   where e.run_at is null or e.run_at <= v_now;", ";")], None,
     ["retry::a_retry_is_not_handed_out_before_its_time_and_then_keeps_its_fence_rising"]),
    ("a_grant_too_many", "grants.sql",
     "grant select on euterpe.job_timeline",
     "grant select on euterpe.job_secrets to euterpe_readonly;\n"
     "grant execute on function euterpe.claim_jobs_v1 to euterpe_api;\ngrant select on euterpe.job_timeline",
     ["privileges::every_role_may_do_with_tables_exactly_what_is_written_here",
      "privileges::every_role_may_execute_exactly_what_is_written_here"]),
    ("an_open_search_path", "inbox/enqueue_job_v1.sql",
     "set search_path = euterpe, pg_temp\n", "",
     ["house_style::the_database_keeps_our_habits"]),
    ("isolation_not_checked", "shared/_insist_read_committed.sql", "<> 'read committed'", "= 'nothing'",
     ["ownership::repeatable_read_is_refused"]),
]


def main():
    for old in HERE.glob("*.patch"):
        old.unlink()
    for name, path, before, after, tests in MUTANTS:
        good = {file: (SQL / file).read_text() for file in path.split(" + ")}
        bad = dict(good)
        for there, instead in before if isinstance(before, list) else [(before, after)]:
            if not any(there in text for text in bad.values()):
                raise SystemExit(f"{name}: sql/{path} no longer contains {there!r}")
            bad = {file: text.replace(there, instead) for file, text in bad.items()}
        patch = "".join(f"Test: {test}\n" for test in tests) + "\n"
        for file in good:
            lines = [text[file].splitlines(True) for text in (good, bad)]
            patch += "".join(difflib.unified_diff(*lines, f"a/{file}", f"b/{file}"))
        (HERE / f"{name}.patch").write_text(patch)


if __name__ == "__main__":
    main()
