-- The inbox: one row per job, its cold half, its results, its sealed secrets (contract §1, §3, §10).
--
-- The six tables of a job share weekly ranges of job_id (UUIDv7: a time range is an id range). Their
-- partitions are made by _make_partitions, never here, and there is no default partition: it would
-- make detaching block. No index column or predicate of inbox_jobs names status, lease, worker or
-- progress, so that claims, heartbeats and phase changes are heap-only updates.

create table euterpe.inbox_jobs (
  job_id                   uuid        not null,
  requester_id             text        not null,
  queue_id                 smallint    not null,
  external_id              text,
  priority                 smallint    not null,
  status                   text        not null,
  attempt_count            integer     not null default 0,
  max_attempts             integer     not null,

  -- Ownership: who holds the row, until when, and behind which fence.
  worker_id                text,
  lease_expires_at         timestamptz,
  heartbeat_at             timestamptz,
  claim_version            bigint      not null default 0,
  claim_token              uuid,

  -- Its place in the line.
  line_key                 bigint      not null,
  line_seq                 bigint,
  run_at                   timestamptz,

  -- What happened so far.
  last_sequence            integer     not null default 0,
  unstarted_expiries       smallint    not null default 0,
  shutdown_releases        smallint    not null default 0,
  credential_version       integer     not null default 0,
  credential_refresh_count integer     not null default 0,
  credential_refresh_streak smallint   not null default 0,
  event_filter             text[],
  callback_origin          text,
  progress                 jsonb,
  last_error               jsonb,
  ended_as                 text,
  redriven_as              uuid,
  redrive_of               uuid,
  created_at               timestamptz not null,
  started_at               timestamptz,
  updated_at               timestamptz not null,
  finished_at              timestamptz,

  constraint inbox_jobs_pkey primary key (job_id),
  constraint inbox_jobs_status_known check (status in (
    'queued', 'claimed', 'fetching', 'processing', 'uploading', 'succeeded', 'failed', 'dead_letter')),
  constraint inbox_jobs_owned_while_running check (
    num_nonnulls(worker_id, lease_expires_at, heartbeat_at, claim_token)
      = case when status in ('claimed', 'fetching', 'processing', 'uploading') then 4 else 0 end),
  constraint inbox_jobs_in_line_while_queued check ((line_seq is not null) = (status = 'queued')),
  constraint inbox_jobs_attempts_within_budget check (
    attempt_count between 0 and max_attempts and max_attempts between 1 and 100),
  constraint inbox_jobs_finished_when_ended check (
    (finished_at is not null) = (status in ('succeeded', 'failed', 'dead_letter'))),
  constraint inbox_jobs_ended_as_is_absorbing check (
    (ended_as is not null) = (status in ('succeeded', 'dead_letter')) and ended_as = status),
  constraint inbox_jobs_priority_bounded check (priority between 0 and 1000),
  constraint inbox_jobs_external_id_bounded check (length(external_id) between 1 and 255)
) partition by range (job_id);

create index inbox_jobs_by_requester on euterpe.inbox_jobs (requester_id, job_id);
create index inbox_jobs_by_external_id on euterpe.inbox_jobs (requester_id, external_id, job_id)
  where external_id is not null;
create index inbox_jobs_unfinished on euterpe.inbox_jobs (requester_id, job_id) where finished_at is null;
create index inbox_jobs_dead_letters on euterpe.inbox_jobs (queue_id, job_id) where ended_as = 'dead_letter';

comment on table euterpe.inbox_jobs is
  'One row per job: where it stands, who owns it, behind which fence. Written only by functions.';
comment on column euterpe.inbox_jobs.job_id is
  'UUIDv7; its time is created_at, its last byte the bucket of the requester (first byte of SHA-256 of requester_id).';
comment on column euterpe.inbox_jobs.requester_id is 'Whose job it is.';
comment on column euterpe.inbox_jobs.queue_id is 'The line it stands in.';
comment on column euterpe.inbox_jobs.external_id is 'The requester''s own name for it; need not be unique.';
comment on column euterpe.inbox_jobs.priority is '0 to 1000, default 100, higher first; one point is one job of credit.';
comment on column euterpe.inbox_jobs.status is 'Contract §3; moves only along job_transitions, only by _transition.';
comment on column euterpe.inbox_jobs.attempt_count is 'Executions started: rises on claimed -> fetching, not on claim.';
comment on column euterpe.inbox_jobs.max_attempts is 'Budget of executions.';
comment on column euterpe.inbox_jobs.worker_id is 'Owner: pod name, # and eight digits of its boot id.';
comment on column euterpe.inbox_jobs.lease_expires_at is 'Until then nobody else may take it.';
comment on column euterpe.inbox_jobs.heartbeat_at is 'When the owner was last heard of.';
comment on column euterpe.inbox_jobs.claim_version is 'Half of the fence: rises by one per claim, never falls.';
comment on column euterpe.inbox_jobs.claim_token is
  'Other half of the fence: random per claim. A version alone is handed out twice after a lossy failover.';
comment on column euterpe.inbox_jobs.line_key is 'Its first key in the line; an item that comes back keeps its place.';
comment on column euterpe.inbox_jobs.line_seq is 'Number of its one valid entry in ready or delayed; null when in no line.';
comment on column euterpe.inbox_jobs.run_at is 'Not before; null: as soon as possible.';
comment on column euterpe.inbox_jobs.last_sequence is 'Number of its newest event; events are numbered without gaps.';
comment on column euterpe.inbox_jobs.unstarted_expiries is 'Leases that lapsed and failures that came before an execution started; 20 in a row end the job.';
comment on column euterpe.inbox_jobs.shutdown_releases is 'Attempts given back because a worker was shut down; at most three.';
comment on column euterpe.inbox_jobs.credential_version is 'Rises with each replacement of its storage credentials; 0: none stored.';
comment on column euterpe.inbox_jobs.credential_refresh_count is 'Refreshes asked for in all; at most 50.';
comment on column euterpe.inbox_jobs.credential_refresh_streak is 'Refreshes in a row without a storage call that worked; at most three.';
comment on column euterpe.inbox_jobs.event_filter is 'Which event types go to the webhook; null: no webhook url, events are skipped.';
comment on column euterpe.inbox_jobs.callback_origin is 'Scheme, host and port of the webhook url; the rest of it is sealed.';
comment on column euterpe.inbox_jobs.progress is 'What the owner last said: percent, phase, output, speed, eta_seconds, updated_at.';
comment on column euterpe.inbox_jobs.last_error is 'Normalized error of the last failure: code, class, message, retryable, phase, attempt, ….';
comment on column euterpe.inbox_jobs.ended_as is 'succeeded or dead_letter; set once, never changed.';
comment on column euterpe.inbox_jobs.redriven_as is 'The one new job made from this dead letter.';
comment on column euterpe.inbox_jobs.redrive_of is 'The dead letter this job was made from.';
comment on column euterpe.inbox_jobs.created_at is 'The time in job_id.';
comment on column euterpe.inbox_jobs.started_at is 'When its first execution started.';
comment on column euterpe.inbox_jobs.updated_at is 'When its status last changed.';
comment on column euterpe.inbox_jobs.finished_at is 'When it ended; null while something will still happen by itself.';

create table euterpe.job_requests (
  job_id       uuid  not null,
  request      jsonb not null,
  metadata     jsonb,
  traceparent  text,

  constraint job_requests_pkey primary key (job_id),
  constraint job_requests_request_is_object check (jsonb_typeof(request) = 'object'),
  constraint job_requests_metadata_is_object check (jsonb_typeof(metadata) = 'object'),
  constraint job_requests_traceparent_bounded check (length(traceparent) <= 255)
) partition by range (job_id);
comment on table euterpe.job_requests is 'The cold half of a job: what was asked. Insert only.';
comment on column euterpe.job_requests.job_id is 'The job.';
comment on column euterpe.job_requests.request is 'Request document with presets expanded; no secret is in it.';
comment on column euterpe.job_requests.metadata is 'The requester''s own words, handed back in every event.';
comment on column euterpe.job_requests.traceparent is 'W3C trace context of the request.';

create table euterpe.job_results (
  job_id      uuid        not null,
  source      jsonb,
  outputs     jsonb       not null,
  created_at  timestamptz not null,

  constraint job_results_pkey primary key (job_id),
  constraint job_results_source_is_object check (jsonb_typeof(source) = 'object'),
  constraint job_results_outputs_is_array check (jsonb_typeof(outputs) = 'array')
) partition by range (job_id);
comment on table euterpe.job_results is 'What a succeeded job brought. Insert only.';
comment on column euterpe.job_results.job_id is 'The job.';
comment on column euterpe.job_results.source is 'What probing the source found.';
comment on column euterpe.job_results.outputs is 'One object per output: name, uri, size_bytes, sha256, ….';
comment on column euterpe.job_results.created_at is 'When it succeeded.';

create table euterpe.job_secrets (
  job_id                           uuid        not null,
  purpose                          text        not null,
  storage_creds_encrypted          bytea       not null,
  storage_creds_dek_wrapped        bytea       not null,
  storage_creds_kek_id             text        not null,
  storage_creds_encryption_version smallint    not null,
  credential_version               integer     not null,
  sealed_at                        timestamptz not null,

  constraint job_secrets_pkey primary key (job_id, purpose),
  constraint job_secrets_purpose_known check (purpose in ('storage', 'callback')),
  constraint job_secrets_sizes_bounded check (
    length(storage_creds_encrypted) between 1 and 65536
    and length(storage_creds_dek_wrapped) between 1 and 1024
    and length(storage_creds_kek_id) between 1 and 64)
) partition by range (job_id);
comment on table euterpe.job_secrets is
  'Envelope-encrypted secrets of a job (contract §10). SQL never sees plaintext; only fenced functions read it.';
comment on column euterpe.job_secrets.job_id is 'The job; bound into the ciphertext.';
comment on column euterpe.job_secrets.purpose is
  'storage: credentials and signed urls, replaced by a refresh. callback: webhook and refresh url, sealed once.';
comment on column euterpe.job_secrets.storage_creds_encrypted is 'Ciphertext under a key of its own (DEK).';
comment on column euterpe.job_secrets.storage_creds_dek_wrapped is 'That key, wrapped by the KEK.';
comment on column euterpe.job_secrets.storage_creds_kek_id is 'Which KEK wrapped it.';
comment on column euterpe.job_secrets.storage_creds_encryption_version is 'Format of the ciphertext.';
comment on column euterpe.job_secrets.credential_version is 'Version bound into the ciphertext; an older one put back does not decrypt.';
comment on column euterpe.job_secrets.sealed_at is 'When it was stored.';

create table euterpe.job_transitions (
  from_status         text    not null,
  to_status           text    not null,
  needs_budget        boolean not null default false,
  meaning             text    not null,

  constraint job_transitions_pkey primary key (from_status, to_status)
);
comment on table euterpe.job_transitions is
  'Contract §3 as rows: the steps a job may take. Functions, tests and docs read this one list.';
comment on column euterpe.job_transitions.from_status is 'Where the job stands.';
comment on column euterpe.job_transitions.to_status is 'Where it may go.';
comment on column euterpe.job_transitions.needs_budget is 'Only while attempt_count < max_attempts.';
comment on column euterpe.job_transitions.meaning is 'What the step says.';
insert into euterpe.job_transitions (from_status, to_status, needs_budget, meaning) values
  ('queued',     'claimed',     false, 'a worker took it'),
  ('claimed',    'fetching',    false, 'an execution attempt started'),
  ('fetching',   'processing',  false, 'the source is here'),
  ('processing', 'uploading',   false, 'the outputs are made'),
  ('uploading',  'succeeded',   false, 'the outputs are delivered'),
  ('claimed',    'queued',      false, 'handed back or lease expired, before it started'),
  ('fetching',   'queued',      false, 'retry, hand-back or lease expired'),
  ('processing', 'queued',      false, 'retry, hand-back or lease expired'),
  ('uploading',  'queued',      false, 'retry, hand-back or lease expired'),
  ('claimed',    'failed',      false, 'ended before it started'),
  ('fetching',   'failed',      false, 'ended while fetching'),
  ('processing', 'failed',      false, 'ended while processing'),
  ('uploading',  'failed',      false, 'ended while uploading'),
  ('failed',     'queued',      true,  'retried by hand'),
  ('failed',     'dead_letter', false, 'budget spent, or unrecoverable by policy');

create table euterpe.error_codes (
  code      text     not null,
  class     text     not null,
  policy    text     not null,
  max_tries smallint,
  meaning   text     not null,

  constraint error_codes_pkey primary key (code),
  constraint error_codes_policy_known check (policy in ('retry', 'retry_slow', 'rest', 'dead_letter')),
  constraint error_codes_max_tries_positive check (max_tries > 0)
);
comment on table euterpe.error_codes is
  'What each failure does to a job: fail_jobs_v1 looks its code up here. An unlisted code is class internal, policy retry.';
comment on column euterpe.error_codes.code is 'What the worker says.';
comment on column euterpe.error_codes.class is 'Group shown to requesters.';
comment on column euterpe.error_codes.policy is
  'retry: back to the line with backoff. retry_slow: the same, four steps higher. rest: failed, may be retried by hand. dead_letter: no retry can mend it.';
comment on column euterpe.error_codes.max_tries is 'Rest after this many attempts even if the budget allows more; null: the budget decides.';
comment on column euterpe.error_codes.meaning is 'In words.';
insert into euterpe.error_codes (code, class, policy, max_tries, meaning) values
  ('storage_locked',               'storage_transient', 'retry',       null, 'the store answered 423'),
  ('storage_rate_limited',         'storage_transient', 'retry_slow',  null, 'the store answered 429 or SlowDown'),
  ('storage_unavailable',          'storage_transient', 'retry',       null, 'the store answered 5xx'),
  ('storage_timeout',              'storage_transient', 'retry',       null, 'the store did not answer in time'),
  ('storage_connection',           'storage_transient', 'retry',       null, 'no connection to the store'),
  ('credential_refresh_exhausted', 'storage_auth',      'dead_letter', null, 'refreshing the credentials did not help'),
  ('source_not_found',             'source',            'rest',        null, 'there is no such source'),
  ('source_too_large',             'source',            'rest',        null, 'the source is larger than allowed'),
  ('source_changed',               'source',            'rest',        null, 'the source changed while it was read'),
  ('source_checksum_mismatch',     'source',            'rest',        null, 'the source is not what the request says'),
  ('source_truncated',             'source',            'retry',       2,    'the source ended early'),
  ('egress_blocked',               'source',            'dead_letter', null, 'the address is not allowed'),
  ('media_unreadable',             'media',             'rest',        null, 'no decoder can read it'),
  ('media_unsupported_format',     'media',             'rest',        null, 'the format is not on the list'),
  ('media_no_streams',             'media',             'rest',        null, 'it has no stream of the kind asked for'),
  ('media_drm',                    'media',             'rest',        null, 'it is encrypted'),
  ('output_too_large',             'limits',            'rest',        null, 'an output grew beyond its limit'),
  ('duration_limit',               'limits',            'rest',        null, 'it is longer than allowed'),
  ('pixel_limit',                  'limits',            'rest',        null, 'it has more pixels than allowed'),
  ('encode_failed',                'encode',            'retry',       2,    'the encoder failed'),
  ('encode_timeout',               'encode',            'retry',       2,    'the encoder took too long'),
  ('encode_stalled',               'encode',            'retry',       2,    'the encoder made no progress'),
  ('encode_killed',                'encode',            'retry',       2,    'the encoder was killed, perhaps for its memory'),
  ('output_invalid',               'encode',            'retry',       2,    'an output does not pass its own probe'),
  ('upload_failed',                'upload',            'retry',       null, 'an output could not be stored'),
  ('upload_conflict',              'upload',            'retry',       null, 'an output met another writer'),
  ('cancelled',                    'control',           'rest',        null, 'the requester or an operator cancelled it'),
  ('lease_expired',                'control',           'retry',       null, 'its worker was not heard of in time'),
  ('never_started',                'control',           'dead_letter', null, 'it was claimed twenty times and never started'),
  ('worker_shutdown',              'control',           'retry',       null, 'its worker was shut down'),
  ('internal',                     'internal',          'retry',       null, 'our fault'),
  ('decrypt_failed',               'internal',          'dead_letter', null, 'its sealed credentials do not open');

-- Two shapes that private functions hand to each other. No caller outside sees them, so they may change
-- together with the functions, in one euterpe-migrate.

create type euterpe._step as (
  job_id           uuid,
  to_status        text,
  claim_version    bigint,
  claim_token      uuid,
  worker_id        text,
  new_token        uuid,
  lease_expires_at timestamptz,
  reason           text,
  error            jsonb,
  outputs          jsonb,
  final            boolean,
  gives_back       boolean,
  run_at           timestamptz,
  line_seq         bigint
);
comment on type euterpe._step is
  'One step of one job, as _transition and _end_or_requeue take it: where to, by whose claim, and why.';
comment on column euterpe._step.job_id is 'The job.';
comment on column euterpe._step.to_status is 'Where it should go.';
comment on column euterpe._step.claim_version is 'Fence; null: the caller holds the row lock and has the right by other means.';
comment on column euterpe._step.claim_token is 'Fence.';
comment on column euterpe._step.worker_id is 'Fence; on a claim the new owner.';
comment on column euterpe._step.new_token is 'On a claim: the token of the new owner.';
comment on column euterpe._step.lease_expires_at is 'On a claim: how long it lasts.';
comment on column euterpe._step.reason is 'Why, for the event.';
comment on column euterpe._step.error is 'Normalized error, for last_error and the event.';
comment on column euterpe._step.outputs is 'On success, for the event.';
comment on column euterpe._step.final is 'On failed: it rests, nothing follows unless a person acts.';
comment on column euterpe._step.gives_back is 'The attempt was not the job''s fault and is given back.';
comment on column euterpe._step.run_at is 'On queued: not before.';
comment on column euterpe._step.line_seq is 'On queued: number of its new entry in the line.';

create type euterpe._new_job as (
  ordinal         integer,
  job_id          uuid,
  request         jsonb,
  priority        integer,
  max_attempts    integer,
  run_at          timestamptz,
  external_id     text,
  metadata        jsonb,
  traceparent     text,
  event_filter    text[],
  callback_origin text,
  sealed          jsonb,
  idempotency_key text,
  request_hash    bytea,
  hash_version    smallint,
  response        bytea,
  key_ttl_seconds integer,
  complaint       text
);
comment on type euterpe._new_job is 'One job to be accepted, as _enqueue_jobs takes it.';
comment on column euterpe._new_job.ordinal is 'Its place in the call.';
comment on column euterpe._new_job.job_id is 'UUIDv7 of this requester''s bucket; null: made here.';
comment on column euterpe._new_job.request is 'Request document.';
comment on column euterpe._new_job.priority is '0 to 1000.';
comment on column euterpe._new_job.max_attempts is 'Budget; null: that of the queue.';
comment on column euterpe._new_job.run_at is 'Not before; null: now.';
comment on column euterpe._new_job.external_id is 'The requester''s own name for it.';
comment on column euterpe._new_job.metadata is 'Handed back in every event.';
comment on column euterpe._new_job.traceparent is 'W3C trace context.';
comment on column euterpe._new_job.event_filter is 'Event types for the webhook; null: no webhook.';
comment on column euterpe._new_job.callback_origin is 'Scheme, host and port of the webhook.';
comment on column euterpe._new_job.sealed is 'Sealed secrets by purpose: {"storage": {"encrypted", "dek_wrapped", "kek_id", "encryption_version"}}.';
comment on column euterpe._new_job.idempotency_key is 'Contract §9; null: none.';
comment on column euterpe._new_job.request_hash is 'SHA-256 of the canonical request; null: of the jsonb text.';
comment on column euterpe._new_job.hash_version is 'Canonical form; 0: the jsonb text.';
comment on column euterpe._new_job.response is 'Answer to store; null: {"job_id": …}.';
comment on column euterpe._new_job.key_ttl_seconds is 'How long the key lives.';
comment on column euterpe._new_job.complaint is 'Why it could not be read at all; null: it could.';
