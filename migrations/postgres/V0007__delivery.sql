-- Delivery: what the outbox needs to be gated, claimed, retried and redelivered (contract §1, §8), and what endings
-- and refreshed credentials need (contract §5, §7, §10). V0008 validates the constraints, in a transaction of its own.

alter table euterpe.inbox_jobs
  add column head_sequence    integer,
  add column callback_trouble text,
  add column can_refresh      boolean not null default false,
  add constraint inbox_jobs_head_is_an_event check (head_sequence between 1 and last_sequence) not valid,
  add constraint inbox_jobs_callback_trouble_known check (callback_trouble in ('failing', 'gone')) not valid;
comment on column euterpe.inbox_jobs.head_sequence is
  'The one event of this job that may be delivered now; null: none waits. Later ones wait behind it. Changed only under the row lock.';
comment on column euterpe.inbox_jobs.callback_trouble is
  'failing: an event was given up, later ones get one attempt each. gone: the endpoint answered 410, nothing is sent any more.';
comment on column euterpe.inbox_jobs.can_refresh is 'It has a refresh_url (sealed), so new credentials can be asked for.';

alter table euterpe.job_outbox_events
  add column callback_origin text,
  add column attempts_before integer not null default 0,
  -- squawk-ignore ban-drop-constraint
  drop constraint job_outbox_events_attempts_within_budget, -- widened: a redelivery brings a new budget
  add constraint job_outbox_events_attempts_within_budget check (
    attempts_before between 0 and attempt_count and attempt_count <= max_attempts
    and max_attempts between 1 and 1000) not valid;
comment on column euterpe.job_outbox_events.callback_origin is 'Scheme, host and port it goes to: with the requester, its endpoint.';
comment on column euterpe.job_outbox_events.attempts_before is
  'Attempts made before somebody asked for it to be delivered again: its waits start anew from there.';

alter table euterpe.delayed
  add column endpoint text;
-- squawk-ignore require-concurrent-index-creation
create index delayed_by_endpoint on euterpe.delayed (endpoint, queue_id, run_at, seq) where endpoint is not null;
comment on column euterpe.delayed.endpoint is
  'For events: requester and origin they go to. When its circuit closes, they need not wait any longer.';

alter table euterpe.endpoint_circuits
  add column failed_probes integer not null default 0;
comment on column euterpe.endpoint_circuits.failed_probes is 'Probes in a row that failed; each doubles the time to the next.';
comment on column euterpe.endpoint_circuits.probe_at is
  'When not closed: from then on one delivery may pass. Moved on by the claim that lets it pass.';

alter table euterpe.job_secrets
  add column bound_to uuid;
comment on column euterpe.job_secrets.bound_to is
  'The job bound into the ciphertext, where it is another one: a redriven job keeps the callback of the job it was made from.';

create table euterpe.secret_expiries (
  expires_at  timestamptz not null,
  job_id      uuid        not null,

  constraint secret_expiries_pkey primary key (expires_at, job_id)
);
comment on table euterpe.secret_expiries is
  'Look at this job after expires_at: if it still rests as failed, its storage credentials go. Insert and delete.';
comment on column euterpe.secret_expiries.expires_at is 'A day after it came to rest.';
comment on column euterpe.secret_expiries.job_id is 'The job.';

create table euterpe.delivery_classes (
  error_class text    not null,
  policy      text    not null,
  trips       boolean not null,
  meaning     text    not null,

  constraint delivery_classes_pkey primary key (error_class),
  constraint delivery_classes_policy_known check (policy in ('retry', 'dead_letter', 'end_callbacks'))
);
comment on table euterpe.delivery_classes is
  'What each kind of failed delivery does to an event: settle_events_v1 looks it up here. An unlisted one is retried and does not trip.';
comment on column euterpe.delivery_classes.error_class is 'What the webhook worker says.';
comment on column euterpe.delivery_classes.policy is
  'retry: later, until the budget is spent. dead_letter: given up at once. end_callbacks: given up, and nothing more is sent for this job.';
comment on column euterpe.delivery_classes.trips is 'Whether it counts against the endpoint''s circuit.';
comment on column euterpe.delivery_classes.meaning is 'In words.';
insert into euterpe.delivery_classes (error_class, policy, trips, meaning) values
  ('dns',            'retry',         true,  'the name does not resolve'),
  ('connect',        'retry',         true,  'no connection to the endpoint'),
  ('tls',            'retry',         true,  'no secure connection to the endpoint'),
  ('timeout',        'retry',         true,  'the endpoint did not answer in time'),
  ('closed',         'retry',         true,  'the endpoint hung up before it had answered'),
  ('protocol',       'retry',         true,  'the endpoint''s answer is no HTTP, or too large'),
  ('status',         'retry',         true,  'the endpoint answered with a status that is no success'),
  ('redirect',       'retry',         true,  'the endpoint answered 3xx; redirects are not followed'),
  ('rate_limited',   'retry',         false, 'the endpoint answered 429: it is there and wants us slower'),
  ('gone',           'end_callbacks', false, 'the endpoint answered 410'),
  ('blocked',        'dead_letter',   false, 'the address is not allowed'),
  ('decrypt_failed', 'dead_letter',   false, 'the sealed url does not open'),
  ('never_settled',  'dead_letter',   false, 'it was claimed twenty times and nobody said what came of it'),
  ('internal',       'retry',         false, 'our fault');

create sequence euterpe_line.mend_cursor_ms minvalue 0 start 0;
comment on sequence euterpe_line.mend_cursor_ms is 'How far upkeep has looked for jobs whose next event is in no line: time in the job_id.';
create sequence euterpe_line.mended minvalue 0 start 0;
comment on sequence euterpe_line.mended is 'How many such jobs upkeep has found; health shows it. Should stay 0.';
select setval('euterpe_line.mend_cursor_ms', 0), setval('euterpe_line.mended', 0);

-- Its successor has one more argument; with both, calls would not be unique.
-- squawk-ignore ban-drop-function
drop function if exists euterpe._put_in_line(smallint[], uuid[], integer[], bigint[], bigint[], timestamptz[]);

-- What private functions hand to each other about one delivery; it changes with them, in one euterpe-migrate.
create type euterpe._settled as (
  job_id       uuid,
  sequence     integer,
  requester_id text,
  origin       text,
  to_status    text,
  run_at       timestamptz,
  error_class  text,
  http_status  integer,
  duration_ms  integer,
  answer       bytea,
  policy       text,
  trips        boolean,
  is_head      boolean
);
comment on type euterpe._settled is 'One delivery that was accepted behind its fence, as settle_events_v1 has decided it.';
comment on column euterpe._settled.job_id is 'The job.';
comment on column euterpe._settled.sequence is 'Which event of it.';
comment on column euterpe._settled.requester_id is 'Whose endpoint.';
comment on column euterpe._settled.origin is 'Scheme, host and port it went to.';
comment on column euterpe._settled.to_status is 'delivered, dead_letter, or waiting: it will be tried again.';
comment on column euterpe._settled.run_at is 'When it is tried again.';
comment on column euterpe._settled.error_class is 'What it met; null: delivered.';
comment on column euterpe._settled.http_status is 'What the endpoint answered.';
comment on column euterpe._settled.duration_ms is 'How long it took.';
comment on column euterpe._settled.answer is 'First 4 KiB of the answer.';
comment on column euterpe._settled.policy is 'From delivery_classes; null: unlisted, or delivered.';
comment on column euterpe._settled.trips is 'Whether it counts against the circuit.';
comment on column euterpe._settled.is_head is 'Whether later events of the job wait for it.';
