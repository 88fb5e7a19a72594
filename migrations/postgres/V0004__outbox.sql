-- The outbox: one row per transition, written in its transaction (contract §1, §8).
-- Same ownership columns as the inbox, same weekly ranges of job_id.

create table euterpe.job_outbox_events (
  job_id             uuid        not null,
  sequence           integer     not null,
  event_id           text        not null
    generated always as ('evt_' || replace(job_id::text, '-', '') || '_' || sequence::text) stored,
  requester_id       text        not null,
  type               text        not null,
  from_status        text,
  to_status          text        not null,
  reason             text,
  claim_version_then bigint      not null,
  worker_id_then     text,
  payload            text,
  status             text        not null,
  attempt_count      integer     not null default 0,
  max_attempts       integer     not null default 10,

  -- Ownership, as in inbox_jobs.
  worker_id          text,
  lease_expires_at   timestamptz,
  heartbeat_at       timestamptz,
  claim_version      bigint      not null default 0,
  claim_token        uuid,

  -- Its place in the line; null while it is in none.
  queue_id           smallint,
  line_key           bigint,
  line_seq           bigint,
  run_at             timestamptz,

  unstarted_expiries smallint    not null default 0,
  last_error         jsonb,
  created_at         timestamptz not null,
  finished_at        timestamptz,

  constraint job_outbox_events_pkey primary key (job_id, sequence),
  constraint job_outbox_events_sequence_positive check (sequence > 0),
  constraint job_outbox_events_status_known check (status in (
    'waiting', 'ready', 'claimed', 'delivered', 'dead_letter', 'skipped')),
  constraint job_outbox_events_owned_while_claimed check (
    num_nonnulls(worker_id, lease_expires_at, heartbeat_at, claim_token)
      = case when status = 'claimed' then 4 else 0 end),
  constraint job_outbox_events_in_line_while_ready check ((line_seq is not null) = (status = 'ready')),
  constraint job_outbox_events_payload_unless_skipped check ((payload is null) = (status = 'skipped')),
  constraint job_outbox_events_attempts_within_budget check (
    attempt_count between 0 and max_attempts and max_attempts between 1 and 100),
  constraint job_outbox_events_finished_when_settled check (
    (finished_at is not null) = (status in ('delivered', 'dead_letter', 'skipped')))
) partition by range (job_id);

comment on table euterpe.job_outbox_events is
  'One row per transition of a job, gap-free per job, written in the transaction of the transition.';
comment on column euterpe.job_outbox_events.job_id is 'The job.';
comment on column euterpe.job_outbox_events.sequence is 'Its number within the job: 1, 2, 3, … without gaps.';
comment on column euterpe.job_outbox_events.event_id is 'Stable by construction: the same in every delivery.';
comment on column euterpe.job_outbox_events.requester_id is 'Whose job it is.';
comment on column euterpe.job_outbox_events.type is 'transcode.<status>.';
comment on column euterpe.job_outbox_events.from_status is 'Status before; null for the first event.';
comment on column euterpe.job_outbox_events.to_status is 'Status after.';
comment on column euterpe.job_outbox_events.reason is 'Why: lease_expired, an error code, an operator''s word.';
comment on column euterpe.job_outbox_events.claim_version_then is 'claim_version of the job after the transition.';
comment on column euterpe.job_outbox_events.worker_id_then is 'Who owned the job in the transition: its new owner on a claim, else the one that spoke or lost it.';
comment on column euterpe.job_outbox_events.payload is 'The body that is signed and sent, byte for byte; null when skipped.';
comment on column euterpe.job_outbox_events.status is
  'waiting (behind an earlier event), ready, claimed, delivered, dead_letter; skipped: filtered, or no webhook url.';
comment on column euterpe.job_outbox_events.attempt_count is 'Delivery attempts so far.';
comment on column euterpe.job_outbox_events.max_attempts is 'Budget of delivery attempts.';
comment on column euterpe.job_outbox_events.worker_id is 'Which webhook worker holds it.';
comment on column euterpe.job_outbox_events.lease_expires_at is 'Until then nobody else may take it.';
comment on column euterpe.job_outbox_events.heartbeat_at is 'When the owner was last heard of.';
comment on column euterpe.job_outbox_events.claim_version is 'Half of the fence: rises by one per claim.';
comment on column euterpe.job_outbox_events.claim_token is 'Other half of the fence: random per claim.';
comment on column euterpe.job_outbox_events.queue_id is 'The line it stands in: webhook or webhook_retry.';
comment on column euterpe.job_outbox_events.line_key is 'Its first key in that line.';
comment on column euterpe.job_outbox_events.line_seq is 'Number of its one valid entry in ready or delayed.';
comment on column euterpe.job_outbox_events.run_at is 'Not before.';
comment on column euterpe.job_outbox_events.unstarted_expiries is 'Leases that lapsed without a delivery attempt.';
comment on column euterpe.job_outbox_events.last_error is 'What the last delivery attempt met.';
comment on column euterpe.job_outbox_events.created_at is 'When the transition happened.';
comment on column euterpe.job_outbox_events.finished_at is 'When it was delivered, given up or skipped.';

create table euterpe.outbox_attempts (
  job_id       uuid        not null,
  sequence     integer     not null,
  attempt      integer     not null,
  worker_id    text        not null,
  started_at   timestamptz not null,
  duration_ms  integer     not null,
  http_status  smallint,
  error_class  text,
  answer       bytea,

  constraint outbox_attempts_pkey primary key (job_id, sequence, attempt),
  constraint outbox_attempts_answer_bounded check (length(answer) <= 4096)
) partition by range (job_id);
comment on table euterpe.outbox_attempts is 'What each delivery attempt of an event met. Append only.';
comment on column euterpe.outbox_attempts.job_id is 'The job.';
comment on column euterpe.outbox_attempts.sequence is 'Which event of it.';
comment on column euterpe.outbox_attempts.attempt is 'Which attempt: 1, 2, 3, ….';
comment on column euterpe.outbox_attempts.worker_id is 'Who tried.';
comment on column euterpe.outbox_attempts.started_at is 'When.';
comment on column euterpe.outbox_attempts.duration_ms is 'How long it took.';
comment on column euterpe.outbox_attempts.http_status is 'What the endpoint answered; null: it did not.';
comment on column euterpe.outbox_attempts.error_class is 'dns, connect, tls, timeout, status, blocked, …; null: delivered.';
comment on column euterpe.outbox_attempts.answer is 'First 4 KiB of the answer.';

create table euterpe.endpoint_circuits (
  requester_id         text        not null,
  origin               text        not null,
  state                text        not null default 'closed',
  consecutive_failures integer     not null default 0,
  changed_at           timestamptz not null,
  probe_at             timestamptz,

  constraint endpoint_circuits_pkey primary key (requester_id, origin),
  constraint endpoint_circuits_state_known check (state in ('closed', 'open', 'half_open'))
);
comment on table euterpe.endpoint_circuits is
  'Per endpoint: is it worth trying? An open circuit only ever delays deliveries.';
comment on column euterpe.endpoint_circuits.requester_id is 'Whose endpoint.';
comment on column euterpe.endpoint_circuits.origin is 'Scheme, host and port.';
comment on column euterpe.endpoint_circuits.state is 'closed: deliveries flow. open: they wait. half_open: one is tried.';
comment on column euterpe.endpoint_circuits.consecutive_failures is 'Failures since the last success.';
comment on column euterpe.endpoint_circuits.changed_at is 'When the state last changed.';
comment on column euterpe.endpoint_circuits.probe_at is 'When an open circuit lets one delivery through.';
