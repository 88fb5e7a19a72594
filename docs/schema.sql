-- What the migrations make, as pg_dump shows it. `make schema` writes this; a test compares.

CREATE SCHEMA euterpe;
COMMENT ON SCHEMA euterpe IS 'Euterpe: a Postgres-native queue service. Start with: table euterpe.help; then select * from euterpe.explain_job_v1(''…'').';

CREATE SCHEMA euterpe_line;
COMMENT ON SCHEMA euterpe_line IS 'Cursors of the lines, kept in sequences because those are not versioned: a claim reads them without meeting dead rows.';

CREATE TYPE euterpe._new_job AS (
	ordinal integer,
	job_id uuid,
	request jsonb,
	priority integer,
	max_attempts integer,
	run_at timestamp with time zone,
	external_id text,
	metadata jsonb,
	traceparent text,
	event_filter text[],
	callback_origin text,
	sealed jsonb,
	idempotency_key text,
	request_hash bytea,
	hash_version smallint,
	response bytea,
	key_ttl_seconds integer,
	complaint text
);
COMMENT ON TYPE euterpe._new_job IS 'One job to be accepted, as _enqueue_jobs takes it.';
COMMENT ON COLUMN euterpe._new_job.ordinal IS 'Its place in the call.';
COMMENT ON COLUMN euterpe._new_job.job_id IS 'UUIDv7 of this requester''s bucket; null: made here.';
COMMENT ON COLUMN euterpe._new_job.request IS 'Request document.';
COMMENT ON COLUMN euterpe._new_job.priority IS '0 to 1000.';
COMMENT ON COLUMN euterpe._new_job.max_attempts IS 'Budget; null: that of the queue.';
COMMENT ON COLUMN euterpe._new_job.run_at IS 'Not before; null: now.';
COMMENT ON COLUMN euterpe._new_job.external_id IS 'The requester''s own name for it.';
COMMENT ON COLUMN euterpe._new_job.metadata IS 'Handed back in every event.';
COMMENT ON COLUMN euterpe._new_job.traceparent IS 'W3C trace context.';
COMMENT ON COLUMN euterpe._new_job.event_filter IS 'Event types for the webhook; null: no webhook.';
COMMENT ON COLUMN euterpe._new_job.callback_origin IS 'Scheme, host and port of the webhook.';
COMMENT ON COLUMN euterpe._new_job.sealed IS 'Sealed secrets by purpose: {"storage": {"encrypted", "dek_wrapped", "kek_id", "encryption_version"}}.';
COMMENT ON COLUMN euterpe._new_job.idempotency_key IS 'Contract §9; null: none.';
COMMENT ON COLUMN euterpe._new_job.request_hash IS 'SHA-256 of the canonical request; null: of the jsonb text.';
COMMENT ON COLUMN euterpe._new_job.hash_version IS 'Canonical form; 0: the jsonb text.';
COMMENT ON COLUMN euterpe._new_job.response IS 'Answer to store; null: {"job_id": …}.';
COMMENT ON COLUMN euterpe._new_job.key_ttl_seconds IS 'How long the key lives.';
COMMENT ON COLUMN euterpe._new_job.complaint IS 'Why it could not be read at all; null: it could.';

CREATE TYPE euterpe._settled AS (
	job_id uuid,
	sequence integer,
	requester_id text,
	origin text,
	to_status text,
	run_at timestamp with time zone,
	error_class text,
	http_status integer,
	duration_ms integer,
	answer bytea,
	policy text,
	trips boolean,
	is_head boolean
);
COMMENT ON TYPE euterpe._settled IS 'One delivery that was accepted behind its fence, as settle_events_v1 has decided it.';
COMMENT ON COLUMN euterpe._settled.job_id IS 'The job.';
COMMENT ON COLUMN euterpe._settled.sequence IS 'Which event of it.';
COMMENT ON COLUMN euterpe._settled.requester_id IS 'Whose endpoint.';
COMMENT ON COLUMN euterpe._settled.origin IS 'Scheme, host and port it went to.';
COMMENT ON COLUMN euterpe._settled.to_status IS 'delivered, dead_letter, or waiting: it will be tried again.';
COMMENT ON COLUMN euterpe._settled.run_at IS 'When it is tried again.';
COMMENT ON COLUMN euterpe._settled.error_class IS 'What it met; null: delivered.';
COMMENT ON COLUMN euterpe._settled.http_status IS 'What the endpoint answered.';
COMMENT ON COLUMN euterpe._settled.duration_ms IS 'How long it took.';
COMMENT ON COLUMN euterpe._settled.answer IS 'First 4 KiB of the answer.';
COMMENT ON COLUMN euterpe._settled.policy IS 'From delivery_classes; null: unlisted, or delivered.';
COMMENT ON COLUMN euterpe._settled.trips IS 'Whether it counts against the circuit.';
COMMENT ON COLUMN euterpe._settled.is_head IS 'Whether later events of the job wait for it.';

CREATE TYPE euterpe._step AS (
	job_id uuid,
	to_status text,
	claim_version bigint,
	claim_token uuid,
	worker_id text,
	new_token uuid,
	lease_expires_at timestamp with time zone,
	reason text,
	error jsonb,
	outputs jsonb,
	final boolean,
	gives_back boolean,
	run_at timestamp with time zone,
	line_seq bigint
);
COMMENT ON TYPE euterpe._step IS 'One step of one job, as _transition and _end_or_requeue take it: where to, by whose claim, and why.';
COMMENT ON COLUMN euterpe._step.job_id IS 'The job.';
COMMENT ON COLUMN euterpe._step.to_status IS 'Where it should go.';
COMMENT ON COLUMN euterpe._step.claim_version IS 'Fence; null: the caller holds the row lock and has the right by other means.';
COMMENT ON COLUMN euterpe._step.claim_token IS 'Fence.';
COMMENT ON COLUMN euterpe._step.worker_id IS 'Fence; on a claim the new owner.';
COMMENT ON COLUMN euterpe._step.new_token IS 'On a claim: the token of the new owner.';
COMMENT ON COLUMN euterpe._step.lease_expires_at IS 'On a claim: how long it lasts.';
COMMENT ON COLUMN euterpe._step.reason IS 'Why, for the event.';
COMMENT ON COLUMN euterpe._step.error IS 'Normalized error, for last_error and the event.';
COMMENT ON COLUMN euterpe._step.outputs IS 'On success, for the event.';
COMMENT ON COLUMN euterpe._step.final IS 'On failed: it rests, nothing follows unless a person acts.';
COMMENT ON COLUMN euterpe._step.gives_back IS 'The attempt was not the job''s fault and is given back.';
COMMENT ON COLUMN euterpe._step.run_at IS 'On queued: not before.';
COMMENT ON COLUMN euterpe._step.line_seq IS 'On queued: number of its new entry in the line.';

CREATE TABLE euterpe.inbox_jobs (
    job_id uuid NOT NULL,
    requester_id text NOT NULL,
    queue_id smallint NOT NULL,
    external_id text,
    priority smallint NOT NULL,
    status text NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    max_attempts integer NOT NULL,
    worker_id text,
    lease_expires_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    claim_version bigint DEFAULT 0 NOT NULL,
    claim_token uuid,
    line_key bigint NOT NULL,
    line_seq bigint,
    run_at timestamp with time zone,
    last_sequence integer DEFAULT 0 NOT NULL,
    unstarted_expiries smallint DEFAULT 0 NOT NULL,
    shutdown_releases smallint DEFAULT 0 NOT NULL,
    credential_version integer DEFAULT 0 NOT NULL,
    credential_refresh_count integer DEFAULT 0 NOT NULL,
    credential_refresh_streak smallint DEFAULT 0 NOT NULL,
    event_filter text[],
    callback_origin text,
    progress jsonb,
    last_error jsonb,
    ended_as text,
    redriven_as uuid,
    redrive_of uuid,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    updated_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    head_sequence integer,
    callback_trouble text,
    can_refresh boolean DEFAULT false NOT NULL,
    CONSTRAINT inbox_jobs_attempts_within_budget CHECK ((((attempt_count >= 0) AND (attempt_count <= max_attempts)) AND ((max_attempts >= 1) AND (max_attempts <= 100)))),
    CONSTRAINT inbox_jobs_callback_trouble_known CHECK ((callback_trouble = ANY (ARRAY['failing'::text, 'gone'::text]))),
    CONSTRAINT inbox_jobs_ended_as_is_absorbing CHECK ((((ended_as IS NOT NULL) = (status = ANY (ARRAY['succeeded'::text, 'dead_letter'::text]))) AND (ended_as = status))),
    CONSTRAINT inbox_jobs_external_id_bounded CHECK (((length(external_id) >= 1) AND (length(external_id) <= 255))),
    CONSTRAINT inbox_jobs_finished_when_ended CHECK (((finished_at IS NOT NULL) = (status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'dead_letter'::text])))),
    CONSTRAINT inbox_jobs_head_is_an_event CHECK (((head_sequence >= 1) AND (head_sequence <= last_sequence))),
    CONSTRAINT inbox_jobs_in_line_while_queued CHECK (((line_seq IS NOT NULL) = (status = 'queued'::text))),
    CONSTRAINT inbox_jobs_owned_while_running CHECK ((num_nonnulls(worker_id, lease_expires_at, heartbeat_at, claim_token) =
CASE
    WHEN (status = ANY (ARRAY['claimed'::text, 'fetching'::text, 'processing'::text, 'uploading'::text])) THEN 4
    ELSE 0
END)),
    CONSTRAINT inbox_jobs_priority_bounded CHECK (((priority >= 0) AND (priority <= 1000))),
    CONSTRAINT inbox_jobs_status_known CHECK ((status = ANY (ARRAY['queued'::text, 'claimed'::text, 'fetching'::text, 'processing'::text, 'uploading'::text, 'succeeded'::text, 'failed'::text, 'dead_letter'::text])))
)
PARTITION BY RANGE (job_id);
COMMENT ON TABLE euterpe.inbox_jobs IS 'One row per job: where it stands, who owns it, behind which fence. Written only by functions.';
COMMENT ON COLUMN euterpe.inbox_jobs.job_id IS 'UUIDv7; its time is created_at, its last byte the bucket of the requester (first byte of SHA-256 of requester_id).';
COMMENT ON COLUMN euterpe.inbox_jobs.requester_id IS 'Whose job it is.';
COMMENT ON COLUMN euterpe.inbox_jobs.queue_id IS 'The line it stands in.';
COMMENT ON COLUMN euterpe.inbox_jobs.external_id IS 'The requester''s own name for it; need not be unique.';
COMMENT ON COLUMN euterpe.inbox_jobs.priority IS '0 to 1000, default 100, higher first; one point is one job of credit.';
COMMENT ON COLUMN euterpe.inbox_jobs.status IS 'Contract §3; moves only along job_transitions, only by _transition.';
COMMENT ON COLUMN euterpe.inbox_jobs.attempt_count IS 'Executions started: rises on claimed -> fetching, not on claim.';
COMMENT ON COLUMN euterpe.inbox_jobs.max_attempts IS 'Budget of executions.';
COMMENT ON COLUMN euterpe.inbox_jobs.worker_id IS 'Owner: pod name, # and eight digits of its boot id.';
COMMENT ON COLUMN euterpe.inbox_jobs.lease_expires_at IS 'Until then nobody else may take it.';
COMMENT ON COLUMN euterpe.inbox_jobs.heartbeat_at IS 'When the owner was last heard of.';
COMMENT ON COLUMN euterpe.inbox_jobs.claim_version IS 'Half of the fence: rises by one per claim, never falls.';
COMMENT ON COLUMN euterpe.inbox_jobs.claim_token IS 'Other half of the fence: random per claim. A version alone is handed out twice after a lossy failover.';
COMMENT ON COLUMN euterpe.inbox_jobs.line_key IS 'Its first key in the line; an item that comes back keeps its place.';
COMMENT ON COLUMN euterpe.inbox_jobs.line_seq IS 'Number of its one valid entry in ready or delayed; null when in no line.';
COMMENT ON COLUMN euterpe.inbox_jobs.run_at IS 'Not before; null: as soon as possible.';
COMMENT ON COLUMN euterpe.inbox_jobs.last_sequence IS 'Number of its newest event; events are numbered without gaps.';
COMMENT ON COLUMN euterpe.inbox_jobs.unstarted_expiries IS 'Leases that lapsed and failures that came before an execution started; 20 in a row end the job.';
COMMENT ON COLUMN euterpe.inbox_jobs.shutdown_releases IS 'Attempts given back because a worker was shut down; at most three.';
COMMENT ON COLUMN euterpe.inbox_jobs.credential_version IS 'Rises with each replacement of its storage credentials; 0: none stored.';
COMMENT ON COLUMN euterpe.inbox_jobs.credential_refresh_count IS 'Refreshes asked for in all; at most 50.';
COMMENT ON COLUMN euterpe.inbox_jobs.credential_refresh_streak IS 'Refreshes in a row without a storage call that worked; at most three.';
COMMENT ON COLUMN euterpe.inbox_jobs.event_filter IS 'Which event types go to the webhook; null: no webhook url, events are skipped.';
COMMENT ON COLUMN euterpe.inbox_jobs.callback_origin IS 'Scheme, host and port of the webhook url; the rest of it is sealed.';
COMMENT ON COLUMN euterpe.inbox_jobs.progress IS 'What the owner last said: percent, phase, output, speed, eta_seconds, updated_at.';
COMMENT ON COLUMN euterpe.inbox_jobs.last_error IS 'Normalized error of the last failure: code, class, message, retryable, phase, attempt, ….';
COMMENT ON COLUMN euterpe.inbox_jobs.ended_as IS 'succeeded or dead_letter; set once, never changed.';
COMMENT ON COLUMN euterpe.inbox_jobs.redriven_as IS 'The one new job made from this dead letter.';
COMMENT ON COLUMN euterpe.inbox_jobs.redrive_of IS 'The dead letter this job was made from.';
COMMENT ON COLUMN euterpe.inbox_jobs.created_at IS 'The time in job_id.';
COMMENT ON COLUMN euterpe.inbox_jobs.started_at IS 'When its first execution started.';
COMMENT ON COLUMN euterpe.inbox_jobs.updated_at IS 'When its status last changed.';
COMMENT ON COLUMN euterpe.inbox_jobs.finished_at IS 'When it ended; null while something will still happen by itself.';
COMMENT ON COLUMN euterpe.inbox_jobs.head_sequence IS 'The one event of this job that may be delivered now; null: none waits. Later ones wait behind it. Changed only under the row lock.';
COMMENT ON COLUMN euterpe.inbox_jobs.callback_trouble IS 'failing: an event was given up, later ones get one attempt each. gone: the endpoint answered 410, nothing is sent any more.';
COMMENT ON COLUMN euterpe.inbox_jobs.can_refresh IS 'It has a refresh_url (sealed), so new credentials can be asked for.';

CREATE TABLE euterpe.queues (
    queue_id smallint NOT NULL,
    name text NOT NULL,
    holds text NOT NULL,
    paused_at timestamp with time zone,
    lease_seconds integer DEFAULT 60 NOT NULL,
    max_attempts integer DEFAULT 5 NOT NULL,
    backoff_base_ms bigint DEFAULT 2000 NOT NULL,
    backoff_factor integer DEFAULT 2 NOT NULL,
    backoff_cap_ms bigint DEFAULT 600000 NOT NULL,
    shards smallint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT queues_backoff_bounded CHECK ((((backoff_base_ms >= 1) AND (backoff_base_ms <= 3600000)) AND ((backoff_factor >= 1) AND (backoff_factor <= 10)) AND ((backoff_cap_ms >= backoff_base_ms) AND (backoff_cap_ms <= 86400000)))),
    CONSTRAINT queues_holds_known CHECK ((holds = ANY (ARRAY['jobs'::text, 'events'::text]))),
    CONSTRAINT queues_lease_bounded CHECK (((lease_seconds >= 5) AND (lease_seconds <= 3600))),
    CONSTRAINT queues_max_attempts_bounded CHECK (((max_attempts >= 1) AND (max_attempts <= 100))),
    CONSTRAINT queues_name_is_a_slug CHECK ((name ~ '^[a-z0-9_]{1,40}$'::text)),
    CONSTRAINT queues_one_shard_for_now CHECK ((shards = 1))
);
COMMENT ON TABLE euterpe.queues IS 'One row per line. Its cursors are the sequences euterpe_line.q<queue_id>_*.';
COMMENT ON COLUMN euterpe.queues.queue_id IS 'Short id; part of every line key.';
COMMENT ON COLUMN euterpe.queues.name IS 'What callers and people call it: transcode, webhook, webhook_retry.';
COMMENT ON COLUMN euterpe.queues.holds IS 'jobs: its items are inbox_jobs. events: its items are job_outbox_events.';
COMMENT ON COLUMN euterpe.queues.paused_at IS 'Since when it hands out nothing; null: it runs. Set by pause_queue_v1.';
COMMENT ON COLUMN euterpe.queues.lease_seconds IS 'How long a claim lasts without a heartbeat, unless the claimer says otherwise.';
COMMENT ON COLUMN euterpe.queues.max_attempts IS 'Default budget of executions for its items.';
COMMENT ON COLUMN euterpe.queues.backoff_base_ms IS 'Wait before the second attempt, before jitter.';
COMMENT ON COLUMN euterpe.queues.backoff_factor IS 'Each further wait is this many times longer.';
COMMENT ON COLUMN euterpe.queues.backoff_cap_ms IS 'Longest wait, before jitter.';
COMMENT ON COLUMN euterpe.queues.shards IS 'Always 1 for now; shard is in the key so that a line can be split later.';
COMMENT ON COLUMN euterpe.queues.created_at IS 'When it was made.';

CREATE TABLE euterpe.api_keys (
    key_id text NOT NULL,
    requester_id text NOT NULL,
    key_hash bytea NOT NULL,
    pepper_version smallint NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    CONSTRAINT api_keys_hash_is_sha256 CHECK ((length(key_hash) = 32)),
    CONSTRAINT api_keys_key_id_is_short CHECK ((key_id ~ '^[a-z0-9]{8,32}$'::text)),
    CONSTRAINT api_keys_scopes_known CHECK (((scopes <@ ARRAY['transcode:write'::text, 'transcode:read'::text]) AND (cardinality(scopes) > 0)))
);
COMMENT ON TABLE euterpe.api_keys IS 'Keys of the HTTP tier. Only a keyed hash is kept.';
COMMENT ON COLUMN euterpe.api_keys.key_id IS 'The public part of the key.';
COMMENT ON COLUMN euterpe.api_keys.requester_id IS 'Whose key it is.';
COMMENT ON COLUMN euterpe.api_keys.key_hash IS 'HMAC-SHA256 of the secret part under the pepper.';
COMMENT ON COLUMN euterpe.api_keys.pepper_version IS 'Which pepper.';
COMMENT ON COLUMN euterpe.api_keys.scopes IS 'What it may do: transcode:write, transcode:read.';
COMMENT ON COLUMN euterpe.api_keys.created_at IS 'When it was made.';
COMMENT ON COLUMN euterpe.api_keys.expires_at IS 'Not valid from then on; null: no end.';
COMMENT ON COLUMN euterpe.api_keys.revoked_at IS 'Not valid since.';
COMMENT ON COLUMN euterpe.api_keys.last_used_at IS 'Written at most once a minute.';

CREATE TABLE euterpe.delayed (
    queue_id smallint NOT NULL,
    run_at timestamp with time zone NOT NULL,
    seq bigint NOT NULL,
    job_id uuid NOT NULL,
    sequence integer NOT NULL,
    endpoint text
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE euterpe.delayed IS 'What may be claimed later: retries and schedules. tick_v1 moves it to ready when due.';
COMMENT ON COLUMN euterpe.delayed.queue_id IS 'The line it will stand in.';
COMMENT ON COLUMN euterpe.delayed.run_at IS 'Not before.';
COMMENT ON COLUMN euterpe.delayed.seq IS 'Entry number, as in ready.';
COMMENT ON COLUMN euterpe.delayed.job_id IS 'The job.';
COMMENT ON COLUMN euterpe.delayed.sequence IS '0: the job itself. Else: that event of the job.';
COMMENT ON COLUMN euterpe.delayed.endpoint IS 'For events: requester and origin they go to. When its circuit closes, they need not wait any longer.';

CREATE TABLE euterpe.delivery_classes (
    error_class text NOT NULL,
    policy text NOT NULL,
    trips boolean NOT NULL,
    meaning text NOT NULL,
    CONSTRAINT delivery_classes_policy_known CHECK ((policy = ANY (ARRAY['retry'::text, 'dead_letter'::text, 'end_callbacks'::text])))
);
COMMENT ON TABLE euterpe.delivery_classes IS 'What each kind of failed delivery does to an event: settle_events_v1 looks it up here. An unlisted one is retried and does not trip.';
COMMENT ON COLUMN euterpe.delivery_classes.error_class IS 'What the webhook worker says.';
COMMENT ON COLUMN euterpe.delivery_classes.policy IS 'retry: later, until the budget is spent. dead_letter: given up at once. end_callbacks: given up, and nothing more is sent for this job.';
COMMENT ON COLUMN euterpe.delivery_classes.trips IS 'Whether it counts against the endpoint''s circuit.';
COMMENT ON COLUMN euterpe.delivery_classes.meaning IS 'In words.';

CREATE TABLE euterpe.endpoint_circuits (
    requester_id text NOT NULL,
    origin text NOT NULL,
    state text DEFAULT 'closed'::text NOT NULL,
    consecutive_failures integer DEFAULT 0 NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    probe_at timestamp with time zone,
    failed_probes integer DEFAULT 0 NOT NULL,
    CONSTRAINT endpoint_circuits_state_known CHECK ((state = ANY (ARRAY['closed'::text, 'open'::text, 'half_open'::text])))
);
COMMENT ON TABLE euterpe.endpoint_circuits IS 'Per endpoint: is it worth trying? An open circuit only ever delays deliveries.';
COMMENT ON COLUMN euterpe.endpoint_circuits.requester_id IS 'Whose endpoint.';
COMMENT ON COLUMN euterpe.endpoint_circuits.origin IS 'Scheme, host and port.';
COMMENT ON COLUMN euterpe.endpoint_circuits.state IS 'closed: deliveries flow. open: they wait. half_open: one is tried.';
COMMENT ON COLUMN euterpe.endpoint_circuits.consecutive_failures IS 'Failures since the last success.';
COMMENT ON COLUMN euterpe.endpoint_circuits.changed_at IS 'When the state last changed.';
COMMENT ON COLUMN euterpe.endpoint_circuits.probe_at IS 'When not closed: from then on one delivery may pass. Moved on by the claim that lets it pass.';
COMMENT ON COLUMN euterpe.endpoint_circuits.failed_probes IS 'Probes in a row that failed; each doubles the time to the next.';

CREATE TABLE euterpe.error_codes (
    code text NOT NULL,
    class text NOT NULL,
    policy text NOT NULL,
    max_tries smallint,
    meaning text NOT NULL,
    CONSTRAINT error_codes_max_tries_positive CHECK ((max_tries > 0)),
    CONSTRAINT error_codes_policy_known CHECK ((policy = ANY (ARRAY['retry'::text, 'retry_slow'::text, 'rest'::text, 'dead_letter'::text])))
);
COMMENT ON TABLE euterpe.error_codes IS 'What each failure does to a job: fail_jobs_v1 looks its code up here. An unlisted code is class internal, policy retry.';
COMMENT ON COLUMN euterpe.error_codes.code IS 'What the worker says.';
COMMENT ON COLUMN euterpe.error_codes.class IS 'Group shown to requesters.';
COMMENT ON COLUMN euterpe.error_codes.policy IS 'retry: back to the line with backoff. retry_slow: the same, four steps higher. rest: failed, may be retried by hand. dead_letter: no retry can mend it.';
COMMENT ON COLUMN euterpe.error_codes.max_tries IS 'Rest after this many attempts even if the budget allows more; null: the budget decides.';
COMMENT ON COLUMN euterpe.error_codes.meaning IS 'In words.';

CREATE TABLE euterpe.idempotency_keys (
    requester_id text NOT NULL,
    idempotency_key text NOT NULL,
    request_hash bytea NOT NULL,
    hash_version smallint NOT NULL,
    response bytea NOT NULL,
    job_id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT idempotency_keys_hash_is_sha256 CHECK ((length(request_hash) = 32)),
    CONSTRAINT idempotency_keys_key_visible_ascii CHECK ((idempotency_key ~ '^[\x21-\x7e]{1,255}$'::text)),
    CONSTRAINT idempotency_keys_live_three_days CHECK (((expires_at - created_at) >= '72:00:00'::interval)),
    CONSTRAINT idempotency_keys_response_bounded CHECK ((length(response) <= 65536))
);
COMMENT ON TABLE euterpe.idempotency_keys IS 'Contract §9: the same key and hash get the stored answer; another hash is a conflict.';
COMMENT ON COLUMN euterpe.idempotency_keys.requester_id IS 'Whose key: keys of two requesters never meet.';
COMMENT ON COLUMN euterpe.idempotency_keys.idempotency_key IS '1 to 255 visible ASCII characters.';
COMMENT ON COLUMN euterpe.idempotency_keys.request_hash IS 'SHA-256 of the canonical request.';
COMMENT ON COLUMN euterpe.idempotency_keys.hash_version IS 'Which canonical form.';
COMMENT ON COLUMN euterpe.idempotency_keys.response IS 'The answer, byte for byte.';
COMMENT ON COLUMN euterpe.idempotency_keys.job_id IS 'The job it made.';
COMMENT ON COLUMN euterpe.idempotency_keys.created_at IS 'When it was first used.';
COMMENT ON COLUMN euterpe.idempotency_keys.expires_at IS 'From then on the key is free again.';

CREATE TABLE euterpe.job_outbox_events (
    job_id uuid NOT NULL,
    sequence integer NOT NULL,
    event_id text GENERATED ALWAYS AS (((('evt_'::text || replace((job_id)::text, '-'::text, ''::text)) || '_'::text) || (sequence)::text)) STORED NOT NULL,
    requester_id text NOT NULL,
    type text NOT NULL,
    from_status text,
    to_status text NOT NULL,
    reason text,
    claim_version_then bigint NOT NULL,
    worker_id_then text,
    payload text,
    status text NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 10 NOT NULL,
    worker_id text,
    lease_expires_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    claim_version bigint DEFAULT 0 NOT NULL,
    claim_token uuid,
    queue_id smallint,
    line_key bigint,
    line_seq bigint,
    run_at timestamp with time zone,
    unstarted_expiries smallint DEFAULT 0 NOT NULL,
    last_error jsonb,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    callback_origin text,
    attempts_before integer DEFAULT 0 NOT NULL,
    CONSTRAINT job_outbox_events_attempts_within_budget CHECK ((((attempts_before >= 0) AND (attempts_before <= attempt_count)) AND (attempt_count <= max_attempts) AND ((max_attempts >= 1) AND (max_attempts <= 1000)))),
    CONSTRAINT job_outbox_events_finished_when_settled CHECK (((finished_at IS NOT NULL) = (status = ANY (ARRAY['delivered'::text, 'dead_letter'::text, 'skipped'::text])))),
    CONSTRAINT job_outbox_events_in_line_while_ready CHECK (((line_seq IS NOT NULL) = (status = 'ready'::text))),
    CONSTRAINT job_outbox_events_owned_while_claimed CHECK ((num_nonnulls(worker_id, lease_expires_at, heartbeat_at, claim_token) =
CASE
    WHEN (status = 'claimed'::text) THEN 4
    ELSE 0
END)),
    CONSTRAINT job_outbox_events_payload_unless_skipped CHECK (((payload IS NULL) = (status = 'skipped'::text))),
    CONSTRAINT job_outbox_events_sequence_positive CHECK ((sequence > 0)),
    CONSTRAINT job_outbox_events_status_known CHECK ((status = ANY (ARRAY['waiting'::text, 'ready'::text, 'claimed'::text, 'delivered'::text, 'dead_letter'::text, 'skipped'::text])))
)
PARTITION BY RANGE (job_id);
COMMENT ON TABLE euterpe.job_outbox_events IS 'One row per transition of a job, gap-free per job, written in the transaction of the transition.';
COMMENT ON COLUMN euterpe.job_outbox_events.job_id IS 'The job.';
COMMENT ON COLUMN euterpe.job_outbox_events.sequence IS 'Its number within the job: 1, 2, 3, … without gaps.';
COMMENT ON COLUMN euterpe.job_outbox_events.event_id IS 'Stable by construction: the same in every delivery.';
COMMENT ON COLUMN euterpe.job_outbox_events.requester_id IS 'Whose job it is.';
COMMENT ON COLUMN euterpe.job_outbox_events.type IS 'transcode.<status>.';
COMMENT ON COLUMN euterpe.job_outbox_events.from_status IS 'Status before; null for the first event.';
COMMENT ON COLUMN euterpe.job_outbox_events.to_status IS 'Status after.';
COMMENT ON COLUMN euterpe.job_outbox_events.reason IS 'Why: lease_expired, an error code, an operator''s word.';
COMMENT ON COLUMN euterpe.job_outbox_events.claim_version_then IS 'claim_version of the job after the transition.';
COMMENT ON COLUMN euterpe.job_outbox_events.worker_id_then IS 'Who owned the job in the transition: its new owner on a claim, else the one that spoke or lost it.';
COMMENT ON COLUMN euterpe.job_outbox_events.payload IS 'The body that is signed and sent, byte for byte; null when skipped.';
COMMENT ON COLUMN euterpe.job_outbox_events.status IS 'waiting (behind an earlier event), ready, claimed, delivered, dead_letter; skipped: filtered, or no webhook url.';
COMMENT ON COLUMN euterpe.job_outbox_events.attempt_count IS 'Delivery attempts so far.';
COMMENT ON COLUMN euterpe.job_outbox_events.max_attempts IS 'Budget of delivery attempts.';
COMMENT ON COLUMN euterpe.job_outbox_events.worker_id IS 'Which webhook worker holds it.';
COMMENT ON COLUMN euterpe.job_outbox_events.lease_expires_at IS 'Until then nobody else may take it.';
COMMENT ON COLUMN euterpe.job_outbox_events.heartbeat_at IS 'When the owner was last heard of.';
COMMENT ON COLUMN euterpe.job_outbox_events.claim_version IS 'Half of the fence: rises by one per claim.';
COMMENT ON COLUMN euterpe.job_outbox_events.claim_token IS 'Other half of the fence: random per claim.';
COMMENT ON COLUMN euterpe.job_outbox_events.queue_id IS 'The line it stands in: webhook or webhook_retry.';
COMMENT ON COLUMN euterpe.job_outbox_events.line_key IS 'Its first key in that line.';
COMMENT ON COLUMN euterpe.job_outbox_events.line_seq IS 'Number of its one valid entry in ready or delayed.';
COMMENT ON COLUMN euterpe.job_outbox_events.run_at IS 'Not before.';
COMMENT ON COLUMN euterpe.job_outbox_events.unstarted_expiries IS 'Leases that lapsed without a delivery attempt.';
COMMENT ON COLUMN euterpe.job_outbox_events.last_error IS 'What the last delivery attempt met.';
COMMENT ON COLUMN euterpe.job_outbox_events.created_at IS 'When the transition happened.';
COMMENT ON COLUMN euterpe.job_outbox_events.finished_at IS 'When it was delivered, given up or skipped.';
COMMENT ON COLUMN euterpe.job_outbox_events.callback_origin IS 'Scheme, host and port it goes to: with the requester, its endpoint.';
COMMENT ON COLUMN euterpe.job_outbox_events.attempts_before IS 'Attempts made before somebody asked for it to be delivered again: its waits start anew from there.';

CREATE TABLE euterpe.job_requests (
    job_id uuid NOT NULL,
    request jsonb NOT NULL,
    metadata jsonb,
    traceparent text,
    CONSTRAINT job_requests_metadata_is_object CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT job_requests_request_is_object CHECK ((jsonb_typeof(request) = 'object'::text)),
    CONSTRAINT job_requests_traceparent_bounded CHECK ((length(traceparent) <= 255))
)
PARTITION BY RANGE (job_id);
COMMENT ON TABLE euterpe.job_requests IS 'The cold half of a job: what was asked. Insert only.';
COMMENT ON COLUMN euterpe.job_requests.job_id IS 'The job.';
COMMENT ON COLUMN euterpe.job_requests.request IS 'Request document with presets expanded; no secret is in it.';
COMMENT ON COLUMN euterpe.job_requests.metadata IS 'The requester''s own words, handed back in every event.';
COMMENT ON COLUMN euterpe.job_requests.traceparent IS 'W3C trace context of the request.';

CREATE TABLE euterpe.job_results (
    job_id uuid NOT NULL,
    source jsonb,
    outputs jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT job_results_outputs_is_array CHECK ((jsonb_typeof(outputs) = 'array'::text)),
    CONSTRAINT job_results_source_is_object CHECK ((jsonb_typeof(source) = 'object'::text))
)
PARTITION BY RANGE (job_id);
COMMENT ON TABLE euterpe.job_results IS 'What a succeeded job brought. Insert only.';
COMMENT ON COLUMN euterpe.job_results.job_id IS 'The job.';
COMMENT ON COLUMN euterpe.job_results.source IS 'What probing the source found.';
COMMENT ON COLUMN euterpe.job_results.outputs IS 'One object per output: name, uri, size_bytes, sha256, ….';
COMMENT ON COLUMN euterpe.job_results.created_at IS 'When it succeeded.';

CREATE TABLE euterpe.job_secrets (
    job_id uuid NOT NULL,
    purpose text NOT NULL,
    storage_creds_encrypted bytea NOT NULL,
    storage_creds_dek_wrapped bytea NOT NULL,
    storage_creds_kek_id text NOT NULL,
    storage_creds_encryption_version smallint NOT NULL,
    credential_version integer NOT NULL,
    sealed_at timestamp with time zone NOT NULL,
    bound_to uuid,
    CONSTRAINT job_secrets_purpose_known CHECK ((purpose = ANY (ARRAY['storage'::text, 'callback'::text]))),
    CONSTRAINT job_secrets_sizes_bounded CHECK ((((length(storage_creds_encrypted) >= 1) AND (length(storage_creds_encrypted) <= 65536)) AND ((length(storage_creds_dek_wrapped) >= 1) AND (length(storage_creds_dek_wrapped) <= 1024)) AND ((length(storage_creds_kek_id) >= 1) AND (length(storage_creds_kek_id) <= 64))))
)
PARTITION BY RANGE (job_id);
COMMENT ON TABLE euterpe.job_secrets IS 'Envelope-encrypted secrets of a job (contract §10). SQL never sees plaintext; only fenced functions read it.';
COMMENT ON COLUMN euterpe.job_secrets.job_id IS 'The job; bound into the ciphertext.';
COMMENT ON COLUMN euterpe.job_secrets.purpose IS 'storage: credentials and signed urls, replaced by a refresh. callback: webhook and refresh url, sealed once.';
COMMENT ON COLUMN euterpe.job_secrets.storage_creds_encrypted IS 'Ciphertext under a key of its own (DEK).';
COMMENT ON COLUMN euterpe.job_secrets.storage_creds_dek_wrapped IS 'That key, wrapped by the KEK.';
COMMENT ON COLUMN euterpe.job_secrets.storage_creds_kek_id IS 'Which KEK wrapped it.';
COMMENT ON COLUMN euterpe.job_secrets.storage_creds_encryption_version IS 'Format of the ciphertext.';
COMMENT ON COLUMN euterpe.job_secrets.credential_version IS 'Version bound into the ciphertext; an older one put back does not decrypt.';
COMMENT ON COLUMN euterpe.job_secrets.sealed_at IS 'When it was stored.';
COMMENT ON COLUMN euterpe.job_secrets.bound_to IS 'The job bound into the ciphertext, where it is another one: a redriven job keeps the callback of the job it was made from.';

CREATE TABLE euterpe.operator_log (
    log_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    who text NOT NULL,
    act text NOT NULL,
    target text NOT NULL,
    why text,
    job_id uuid
);
COMMENT ON TABLE euterpe.operator_log IS 'What people did to the queue: who by session_user, what, when, why.';
COMMENT ON COLUMN euterpe.operator_log.log_id IS 'In order.';
COMMENT ON COLUMN euterpe.operator_log.at IS 'When.';
COMMENT ON COLUMN euterpe.operator_log.who IS 'session_user.';
COMMENT ON COLUMN euterpe.operator_log.act IS 'The function, without its version.';
COMMENT ON COLUMN euterpe.operator_log.target IS 'Queue, requester, job or key.';
COMMENT ON COLUMN euterpe.operator_log.why IS 'In the operator''s words.';
COMMENT ON COLUMN euterpe.operator_log.job_id IS 'The job it was done to; null: not about one job. Shown in job_timeline.';

CREATE TABLE euterpe.job_transitions (
    from_status text NOT NULL,
    to_status text NOT NULL,
    needs_budget boolean DEFAULT false NOT NULL,
    meaning text NOT NULL
);
COMMENT ON TABLE euterpe.job_transitions IS 'Contract §3 as rows: the steps a job may take. Functions, tests and docs read this one list.';
COMMENT ON COLUMN euterpe.job_transitions.from_status IS 'Where the job stands.';
COMMENT ON COLUMN euterpe.job_transitions.to_status IS 'Where it may go.';
COMMENT ON COLUMN euterpe.job_transitions.needs_budget IS 'Only while attempt_count < max_attempts.';
COMMENT ON COLUMN euterpe.job_transitions.meaning IS 'What the step says.';

CREATE TABLE euterpe.leases (
    queue_id smallint NOT NULL,
    due_at timestamp with time zone NOT NULL,
    job_id uuid NOT NULL,
    sequence integer NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE euterpe.leases IS 'Look at this item after due_at. Heartbeats do not touch it: reclaim re-files what was renewed and forgets what ended.';
COMMENT ON COLUMN euterpe.leases.queue_id IS 'The line the item was claimed from.';
COMMENT ON COLUMN euterpe.leases.due_at IS 'When its lease would lapse if nobody had renewed it.';
COMMENT ON COLUMN euterpe.leases.job_id IS 'The job.';
COMMENT ON COLUMN euterpe.leases.sequence IS '0: the job itself. Else: that event of the job.';

CREATE TABLE euterpe.workers (
    worker_id text NOT NULL,
    kind text NOT NULL,
    release text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    stopped_at timestamp with time zone,
    detail jsonb,
    CONSTRAINT workers_id_bounded CHECK (((length(worker_id) >= 1) AND (length(worker_id) <= 300))),
    CONSTRAINT workers_kind_known CHECK ((kind = ANY (ARRAY['api'::text, 'transcode'::text, 'webhook'::text, 'other'::text])))
);
COMMENT ON TABLE euterpe.workers IS 'Processes that announced themselves. For people: leases never depend on it.';
COMMENT ON COLUMN euterpe.workers.worker_id IS 'Pod name, # and eight digits of its boot id.';
COMMENT ON COLUMN euterpe.workers.kind IS 'api, transcode, webhook, other.';
COMMENT ON COLUMN euterpe.workers.release IS 'Release it runs.';
COMMENT ON COLUMN euterpe.workers.started_at IS 'When it announced itself.';
COMMENT ON COLUMN euterpe.workers.seen_at IS 'When it last did.';
COMMENT ON COLUMN euterpe.workers.stopped_at IS 'When it said goodbye, or upkeep found it absent.';
COMMENT ON COLUMN euterpe.workers.detail IS 'What it says of itself: capacity, sandbox level, ….';

ALTER TABLE euterpe.operator_log ALTER COLUMN log_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME euterpe.operator_log_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE euterpe.outbox_attempts (
    job_id uuid NOT NULL,
    sequence integer NOT NULL,
    attempt integer NOT NULL,
    worker_id text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    duration_ms integer NOT NULL,
    http_status smallint,
    error_class text,
    answer bytea,
    CONSTRAINT outbox_attempts_answer_bounded CHECK ((length(answer) <= 4096))
)
PARTITION BY RANGE (job_id);
COMMENT ON TABLE euterpe.outbox_attempts IS 'What each delivery attempt of an event met. Append only.';
COMMENT ON COLUMN euterpe.outbox_attempts.job_id IS 'The job.';
COMMENT ON COLUMN euterpe.outbox_attempts.sequence IS 'Which event of it.';
COMMENT ON COLUMN euterpe.outbox_attempts.attempt IS 'Which attempt: 1, 2, 3, ….';
COMMENT ON COLUMN euterpe.outbox_attempts.worker_id IS 'Who tried.';
COMMENT ON COLUMN euterpe.outbox_attempts.started_at IS 'When.';
COMMENT ON COLUMN euterpe.outbox_attempts.duration_ms IS 'How long it took.';
COMMENT ON COLUMN euterpe.outbox_attempts.http_status IS 'What the endpoint answered; null: it did not.';
COMMENT ON COLUMN euterpe.outbox_attempts.error_class IS 'dns, connect, tls, timeout, status, blocked, …; null: delivered.';
COMMENT ON COLUMN euterpe.outbox_attempts.answer IS 'First 4 KiB of the answer.';

CREATE TABLE euterpe.ready (
    queue_id smallint NOT NULL,
    shard smallint NOT NULL,
    key bigint NOT NULL,
    seq bigint NOT NULL,
    job_id uuid NOT NULL,
    sequence integer NOT NULL
)
WITH (fillfactor='100', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE euterpe.ready IS 'What may be claimed now, in claim order. The only table a claim scan touches.';
COMMENT ON COLUMN euterpe.ready.queue_id IS 'The line it stands in.';
COMMENT ON COLUMN euterpe.ready.shard IS 'Always 0 while queues.shards is 1.';
COMMENT ON COLUMN euterpe.ready.key IS 'Place in the line: fair share, priority and age in one number. Lower is sooner.';
COMMENT ON COLUMN euterpe.ready.seq IS 'Entry number. Valid only while it equals line_seq of the item; otherwise litter, deleted when met.';
COMMENT ON COLUMN euterpe.ready.job_id IS 'The job.';
COMMENT ON COLUMN euterpe.ready.sequence IS '0: the job itself. Else: that event of the job.';

CREATE TABLE euterpe.queue_samples (
    queue_id smallint NOT NULL,
    sampled_at timestamp with time zone NOT NULL,
    ready_count bigint NOT NULL,
    delayed_count bigint NOT NULL,
    leased_count bigint NOT NULL,
    oldest_ready_age_ms bigint
);
COMMENT ON TABLE euterpe.queue_samples IS 'Depth and age of each line, sampled by upkeep_v1 every ten seconds, so that nobody counts rows per scrape or request.';
COMMENT ON COLUMN euterpe.queue_samples.queue_id IS 'The line.';
COMMENT ON COLUMN euterpe.queue_samples.sampled_at IS 'When.';
COMMENT ON COLUMN euterpe.queue_samples.ready_count IS 'Entries that may be claimed; counted up to 100,000.';
COMMENT ON COLUMN euterpe.queue_samples.delayed_count IS 'Entries that wait for their time; counted up to 100,000.';
COMMENT ON COLUMN euterpe.queue_samples.leased_count IS 'Entries of leases, litter included; counted up to 100,000.';
COMMENT ON COLUMN euterpe.queue_samples.oldest_ready_age_ms IS 'Age of the job at the head of the line; null when the line is empty.';

ALTER TABLE euterpe.queues ALTER COLUMN queue_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME euterpe.queues_queue_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE euterpe.requesters (
    requester_id text NOT NULL,
    requester_no integer NOT NULL,
    display_name text,
    weight smallint DEFAULT 1 NOT NULL,
    max_priority smallint DEFAULT 1000 NOT NULL,
    max_open_jobs integer DEFAULT 100000 NOT NULL,
    requests_per_second integer DEFAULT 20 NOT NULL,
    request_burst integer DEFAULT 60 NOT NULL,
    disabled_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT requesters_display_name_bounded CHECK ((length(display_name) <= 200)),
    CONSTRAINT requesters_id_is_a_slug CHECK ((requester_id ~ '^[a-z0-9_-]{1,64}$'::text)),
    CONSTRAINT requesters_max_open_jobs_bounded CHECK (((max_open_jobs >= 1) AND (max_open_jobs <= 100000000))),
    CONSTRAINT requesters_max_priority_bounded CHECK (((max_priority >= 0) AND (max_priority <= 1000))),
    CONSTRAINT requesters_rate_bounded CHECK ((((requests_per_second >= 1) AND (requests_per_second <= 100000)) AND ((request_burst >= 1) AND (request_burst <= 100000)))),
    CONSTRAINT requesters_weight_bounded CHECK (((weight >= 1) AND (weight <= 100)))
);
COMMENT ON TABLE euterpe.requesters IS 'Who may ask for work, and with what share of it.';
COMMENT ON COLUMN euterpe.requesters.requester_id IS 'A slug: [a-z0-9_-]{1,64}.';
COMMENT ON COLUMN euterpe.requesters.requester_no IS 'Names its sequences: euterpe_line.q<queue_id>_r<requester_no>.';
COMMENT ON COLUMN euterpe.requesters.display_name IS 'For people.';
COMMENT ON COLUMN euterpe.requesters.weight IS 'Share of a line against other requesters, 1 to 100.';
COMMENT ON COLUMN euterpe.requesters.max_priority IS 'Higher priorities are lowered to this.';
COMMENT ON COLUMN euterpe.requesters.max_open_jobs IS 'Unfinished jobs it may have at once.';
COMMENT ON COLUMN euterpe.requesters.requests_per_second IS 'Rate limit of the HTTP tier, per pod.';
COMMENT ON COLUMN euterpe.requesters.request_burst IS 'How many requests may come at once.';
COMMENT ON COLUMN euterpe.requesters.disabled_at IS 'Since when it may not ask; its running jobs go on.';
COMMENT ON COLUMN euterpe.requesters.created_at IS 'When it was added.';

ALTER TABLE euterpe.requesters ALTER COLUMN requester_no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME euterpe.requesters_requester_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE euterpe.schema_history (
    version integer NOT NULL,
    name character varying(255),
    applied_on character varying(255),
    checksum character varying(255)
);
COMMENT ON TABLE euterpe.schema_history IS 'Ledger of refinery: which migration was applied, and when.';
COMMENT ON COLUMN euterpe.schema_history.version IS 'Number of the migration.';
COMMENT ON COLUMN euterpe.schema_history.name IS 'What it does.';
COMMENT ON COLUMN euterpe.schema_history.applied_on IS 'When it was applied.';
COMMENT ON COLUMN euterpe.schema_history.checksum IS 'Of name, number and text: a migration is frozen once released.';

CREATE TABLE euterpe.secret_expiries (
    expires_at timestamp with time zone NOT NULL,
    job_id uuid NOT NULL
);
COMMENT ON TABLE euterpe.secret_expiries IS 'Look at this job after expires_at: if it still rests as failed, its storage credentials go. Insert and delete.';
COMMENT ON COLUMN euterpe.secret_expiries.expires_at IS 'A day after it came to rest.';
COMMENT ON COLUMN euterpe.secret_expiries.job_id IS 'The job.';

CREATE TABLE euterpe.signing_secrets (
    requester_id text NOT NULL,
    version integer NOT NULL,
    secret_encrypted bytea NOT NULL,
    secret_dek_wrapped bytea NOT NULL,
    secret_kek_id text NOT NULL,
    encryption_version smallint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    activated_at timestamp with time zone,
    retired_at timestamp with time zone,
    CONSTRAINT signing_secrets_sizes_bounded CHECK ((((length(secret_encrypted) >= 1) AND (length(secret_encrypted) <= 4096)) AND ((length(secret_dek_wrapped) >= 1) AND (length(secret_dek_wrapped) <= 1024))))
);
COMMENT ON TABLE euterpe.signing_secrets IS 'Webhook signing secrets, sealed like credentials; two are valid while one is rotated.';
COMMENT ON COLUMN euterpe.signing_secrets.requester_id IS 'Whose webhooks it signs.';
COMMENT ON COLUMN euterpe.signing_secrets.version IS '1, 2, 3, …; bound into the ciphertext.';
COMMENT ON COLUMN euterpe.signing_secrets.secret_encrypted IS 'Ciphertext under a key of its own (DEK).';
COMMENT ON COLUMN euterpe.signing_secrets.secret_dek_wrapped IS 'That key, wrapped by the KEK.';
COMMENT ON COLUMN euterpe.signing_secrets.secret_kek_id IS 'Which KEK wrapped it.';
COMMENT ON COLUMN euterpe.signing_secrets.encryption_version IS 'Format of the ciphertext.';
COMMENT ON COLUMN euterpe.signing_secrets.created_at IS 'When it was made.';
COMMENT ON COLUMN euterpe.signing_secrets.activated_at IS 'Since when the contract''s own signature is made with it.';
COMMENT ON COLUMN euterpe.signing_secrets.retired_at IS 'Since when nothing is signed with it.';

CREATE TABLE euterpe.sql_functions (
    path text NOT NULL,
    sha256 text NOT NULL,
    release text NOT NULL,
    loaded_at timestamp with time zone NOT NULL,
    CONSTRAINT sql_functions_release_is_three_numbers CHECK ((release ~ '^[0-9]+\.[0-9]+\.[0-9]+$'::text)),
    CONSTRAINT sql_functions_sha256_is_hex CHECK ((sha256 ~ '^[0-9a-f]{64}$'::text))
);
COMMENT ON TABLE euterpe.sql_functions IS 'Ledger of euterpe-migrate: which file of sql/ is loaded here, and in which wording.';
COMMENT ON COLUMN euterpe.sql_functions.path IS 'File below sql/, e.g. inbox/claim_jobs_v1.sql.';
COMMENT ON COLUMN euterpe.sql_functions.sha256 IS 'SHA-256 of the file as loaded.';
COMMENT ON COLUMN euterpe.sql_functions.release IS 'Release of euterpe-migrate that loaded it.';
COMMENT ON COLUMN euterpe.sql_functions.loaded_at IS 'When it was loaded.';

CREATE SEQUENCE euterpe_line.mend_cursor_ms
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;
COMMENT ON SEQUENCE euterpe_line.mend_cursor_ms IS 'How far upkeep has looked for jobs whose next event is in no line: time in the job_id.';

CREATE SEQUENCE euterpe_line.mended
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;
COMMENT ON SEQUENCE euterpe_line.mended IS 'How many such jobs upkeep has found; health shows it. Should stay 0.';

CREATE SEQUENCE euterpe_line.seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
COMMENT ON SEQUENCE euterpe_line.seq IS 'Numbers every entry of ready and delayed. An item remembers the number of its one valid entry (line_seq).';

ALTER TABLE ONLY euterpe.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);

ALTER TABLE ONLY euterpe.delayed
    ADD CONSTRAINT delayed_pkey PRIMARY KEY (queue_id, run_at, seq);

ALTER TABLE ONLY euterpe.delivery_classes
    ADD CONSTRAINT delivery_classes_pkey PRIMARY KEY (error_class);

ALTER TABLE ONLY euterpe.endpoint_circuits
    ADD CONSTRAINT endpoint_circuits_pkey PRIMARY KEY (requester_id, origin);

ALTER TABLE ONLY euterpe.error_codes
    ADD CONSTRAINT error_codes_pkey PRIMARY KEY (code);

ALTER TABLE ONLY euterpe.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (requester_id, idempotency_key);

ALTER TABLE ONLY euterpe.inbox_jobs
    ADD CONSTRAINT inbox_jobs_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY euterpe.job_outbox_events
    ADD CONSTRAINT job_outbox_events_pkey PRIMARY KEY (job_id, sequence);

ALTER TABLE ONLY euterpe.job_requests
    ADD CONSTRAINT job_requests_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY euterpe.job_results
    ADD CONSTRAINT job_results_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY euterpe.job_secrets
    ADD CONSTRAINT job_secrets_pkey PRIMARY KEY (job_id, purpose);

ALTER TABLE ONLY euterpe.job_transitions
    ADD CONSTRAINT job_transitions_pkey PRIMARY KEY (from_status, to_status);

ALTER TABLE ONLY euterpe.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (queue_id, due_at, job_id, sequence);

ALTER TABLE ONLY euterpe.operator_log
    ADD CONSTRAINT operator_log_pkey PRIMARY KEY (log_id);

ALTER TABLE ONLY euterpe.outbox_attempts
    ADD CONSTRAINT outbox_attempts_pkey PRIMARY KEY (job_id, sequence, attempt);

ALTER TABLE ONLY euterpe.queue_samples
    ADD CONSTRAINT queue_samples_pkey PRIMARY KEY (queue_id, sampled_at);

ALTER TABLE ONLY euterpe.queues
    ADD CONSTRAINT queues_name_unique UNIQUE (name);

ALTER TABLE ONLY euterpe.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (queue_id);

ALTER TABLE ONLY euterpe.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (queue_id, shard, key, seq);

ALTER TABLE ONLY euterpe.requesters
    ADD CONSTRAINT requesters_no_unique UNIQUE (requester_no);

ALTER TABLE ONLY euterpe.requesters
    ADD CONSTRAINT requesters_pkey PRIMARY KEY (requester_id);

ALTER TABLE ONLY euterpe.schema_history
    ADD CONSTRAINT schema_history_pkey PRIMARY KEY (version);

ALTER TABLE ONLY euterpe.secret_expiries
    ADD CONSTRAINT secret_expiries_pkey PRIMARY KEY (expires_at, job_id);

ALTER TABLE ONLY euterpe.signing_secrets
    ADD CONSTRAINT signing_secrets_pkey PRIMARY KEY (requester_id, version);

ALTER TABLE ONLY euterpe.sql_functions
    ADD CONSTRAINT sql_functions_pkey PRIMARY KEY (path);

ALTER TABLE ONLY euterpe.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (worker_id);

CREATE INDEX api_keys_by_requester ON euterpe.api_keys USING btree (requester_id);

CREATE INDEX delayed_by_endpoint ON euterpe.delayed USING btree (endpoint, queue_id, run_at, seq) WHERE (endpoint IS NOT NULL);

CREATE INDEX idempotency_keys_by_expiry ON euterpe.idempotency_keys USING btree (expires_at);

CREATE INDEX inbox_jobs_by_external_id ON ONLY euterpe.inbox_jobs USING btree (requester_id, external_id, job_id) WHERE (external_id IS NOT NULL);

CREATE INDEX inbox_jobs_by_requester ON ONLY euterpe.inbox_jobs USING btree (requester_id, job_id);

CREATE INDEX inbox_jobs_dead_letters ON ONLY euterpe.inbox_jobs USING btree (queue_id, job_id) WHERE (ended_as = 'dead_letter'::text);

CREATE INDEX inbox_jobs_unfinished ON ONLY euterpe.inbox_jobs USING btree (requester_id, job_id) WHERE (finished_at IS NULL);

CREATE INDEX operator_log_by_job ON euterpe.operator_log USING btree (job_id, at) WHERE (job_id IS NOT NULL);

ALTER TABLE ONLY euterpe.api_keys
    ADD CONSTRAINT api_keys_requester_fkey FOREIGN KEY (requester_id) REFERENCES euterpe.requesters(requester_id);

ALTER TABLE ONLY euterpe.signing_secrets
    ADD CONSTRAINT signing_secrets_requester_fkey FOREIGN KEY (requester_id) REFERENCES euterpe.requesters(requester_id);
