-- grants.sql: who may do what. Run by euterpe-migrate after the functions, whole, every time something changed.
--
-- Services may execute the functions they need and read no table. Tests compare this list with the database.

revoke all on all tables in schema euterpe from
  euterpe_api, euterpe_transcode, euterpe_webhook, euterpe_operator, euterpe_readonly;
revoke all on all functions in schema euterpe from
  public, euterpe_api, euterpe_transcode, euterpe_webhook, euterpe_operator, euterpe_readonly;

grant usage on schema euterpe to
  euterpe_api, euterpe_transcode, euterpe_webhook, euterpe_operator, euterpe_readonly;

-- Every service keeps itself known and the queue in order.
grant execute on function
  euterpe.worker_seen_v1, euterpe.worker_stopped_v1, euterpe.upkeep_v1, euterpe.tick_v1, euterpe.queue_depths_v1
  to euterpe_api, euterpe_transcode, euterpe_webhook;

grant execute on function
  euterpe.enqueue_job_v1, euterpe.enqueue_jobs_v1, euterpe.cancel_job_v1, euterpe.retry_job_v1, euterpe.redrive_job_v1,
  euterpe.redeliver_events_v1, euterpe.replace_credentials_v1, euterpe.find_api_key_v1,
  euterpe.read_job_v1, euterpe.list_jobs_v1, euterpe.read_events_v1, euterpe.last_sequences_v1,
  euterpe.count_open_jobs_v1, euterpe.find_idempotency_key_v1
  to euterpe_api;

grant execute on function
  euterpe.claim_jobs_v1, euterpe.heartbeat_jobs_v1, euterpe.advance_jobs_v1, euterpe.complete_jobs_v1,
  euterpe.fail_jobs_v1, euterpe.release_jobs_v1, euterpe.read_job_secrets_v1, euterpe.begin_refreshes_v1,
  euterpe.store_refreshed_v1, euterpe.read_signing_secrets_v1
  to euterpe_transcode;

grant execute on function
  euterpe.claim_events_v1, euterpe.heartbeat_events_v1, euterpe.settle_events_v1, euterpe.release_events_v1,
  euterpe.read_event_secrets_v1, euterpe.read_signing_secrets_v1
  to euterpe_webhook;

grant execute on function
  euterpe.create_queue_v1, euterpe.pause_queue_v1, euterpe.resume_queue_v1,
  euterpe.add_requester_v1, euterpe.disable_requester_v1, euterpe.enable_requester_v1, euterpe.list_requesters_v1,
  euterpe.add_api_key_v1, euterpe.list_api_keys_v1, euterpe.revoke_api_key_v1,
  euterpe.next_signing_version_v1, euterpe.add_signing_secret_v1, euterpe.activate_signing_secret_v1,
  euterpe.retire_signing_secret_v1, euterpe.read_signing_secrets_v1,
  euterpe.list_wrapped_v1, euterpe.rewrap_v1, euterpe.kek_usage_v1,
  euterpe.enqueue_job_v1, euterpe.enqueue_jobs_v1, euterpe.cancel_job_v1, euterpe.retry_job_v1, euterpe.redrive_job_v1,
  euterpe.redeliver_events_v1, euterpe.prioritise_job_v1, euterpe.steer_jobs_v1, euterpe.after_restore_v1,
  euterpe.upkeep_v1, euterpe.tick_v1
  to euterpe_operator;

-- A view runs with its owner's rights, but the functions in it with the reader's.
grant execute on function
  euterpe.orphan_check_v1, euterpe.prunable_weeks_v1, euterpe.health_v1, euterpe.explain_job_v1, euterpe._now, euterpe._ago
  to euterpe_operator, euterpe_readonly;
grant select on
  euterpe.help, euterpe.queue_overview, euterpe.running_jobs, euterpe.stuck_jobs, euterpe.dead_letters, euterpe.outbox_backlog,
  euterpe.job_timeline, euterpe.tenants, euterpe.live_workers, euterpe.health,
  euterpe.error_codes, euterpe.delivery_classes, euterpe.job_transitions, euterpe.operator_log
  to euterpe_operator, euterpe_readonly;
