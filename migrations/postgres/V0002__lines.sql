-- Queues and their lines: what may be claimed now, later, and what to look at again.
-- ready, delayed and leases are inserted into and deleted from, never updated.

create table euterpe.queues (
  queue_id         smallint    not null generated always as identity,
  name             text        not null,
  holds            text        not null,
  paused_at        timestamptz,
  lease_seconds    integer     not null default 60,
  max_attempts     integer     not null default 5,
  backoff_base_ms  bigint      not null default 2000,
  backoff_factor   integer     not null default 2,
  backoff_cap_ms   bigint      not null default 600000,
  shards           smallint    not null default 1,
  created_at       timestamptz not null,

  constraint queues_pkey primary key (queue_id),
  constraint queues_name_unique unique (name),
  constraint queues_name_is_a_slug check (name ~ '^[a-z0-9_]{1,40}$'),
  constraint queues_holds_known check (holds in ('jobs', 'events')),
  constraint queues_lease_bounded check (lease_seconds between 5 and 3600),
  constraint queues_max_attempts_bounded check (max_attempts between 1 and 100),
  constraint queues_backoff_bounded check (
    backoff_base_ms between 1 and 3600000 and backoff_factor between 1 and 10
    and backoff_cap_ms between backoff_base_ms and 86400000),
  constraint queues_one_shard_for_now check (shards = 1)
);
comment on table euterpe.queues is 'One row per line. Its cursors are the sequences euterpe_line.q<queue_id>_*.';
comment on column euterpe.queues.queue_id is 'Short id; part of every line key.';
comment on column euterpe.queues.name is 'What callers and people call it: transcode, webhook, webhook_retry.';
comment on column euterpe.queues.holds is 'jobs: its items are inbox_jobs. events: its items are job_outbox_events.';
comment on column euterpe.queues.paused_at is 'Since when it hands out nothing; null: it runs. Set by pause_queue_v1.';
comment on column euterpe.queues.lease_seconds is 'How long a claim lasts without a heartbeat, unless the claimer says otherwise.';
comment on column euterpe.queues.max_attempts is 'Default budget of executions for its items.';
comment on column euterpe.queues.backoff_base_ms is 'Wait before the second attempt, before jitter.';
comment on column euterpe.queues.backoff_factor is 'Each further wait is this many times longer.';
comment on column euterpe.queues.backoff_cap_ms is 'Longest wait, before jitter.';
comment on column euterpe.queues.shards is 'Always 1 for now; shard is in the key so that a line can be split later.';
comment on column euterpe.queues.created_at is 'When it was made.';

create sequence euterpe_line.seq;
comment on sequence euterpe_line.seq is
  'Numbers every entry of ready and delayed. An item remembers the number of its one valid entry (line_seq).';

create table euterpe.ready (
  queue_id  smallint not null,
  shard     smallint not null,
  key       bigint   not null,
  seq       bigint   not null,
  job_id    uuid     not null,
  sequence  integer  not null,

  constraint ready_pkey primary key (queue_id, shard, key, seq)
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
comment on table euterpe.ready is
  'What may be claimed now, in claim order. The only table a claim scan touches.';
comment on column euterpe.ready.queue_id is 'The line it stands in.';
comment on column euterpe.ready.shard is 'Always 0 while queues.shards is 1.';
comment on column euterpe.ready.key is 'Place in the line: fair share, priority and age in one number. Lower is sooner.';
comment on column euterpe.ready.seq is 'Entry number. Valid only while it equals line_seq of the item; otherwise litter, deleted when met.';
comment on column euterpe.ready.job_id is 'The job.';
comment on column euterpe.ready.sequence is '0: the job itself. Else: that event of the job.';

create table euterpe.delayed (
  queue_id  smallint    not null,
  run_at    timestamptz not null,
  seq       bigint      not null,
  job_id    uuid        not null,
  sequence  integer     not null,

  constraint delayed_pkey primary key (queue_id, run_at, seq)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
comment on table euterpe.delayed is 'What may be claimed later: retries and schedules. tick_v1 moves it to ready when due.';
comment on column euterpe.delayed.queue_id is 'The line it will stand in.';
comment on column euterpe.delayed.run_at is 'Not before.';
comment on column euterpe.delayed.seq is 'Entry number, as in ready.';
comment on column euterpe.delayed.job_id is 'The job.';
comment on column euterpe.delayed.sequence is '0: the job itself. Else: that event of the job.';

create table euterpe.leases (
  queue_id  smallint    not null,
  due_at    timestamptz not null,
  job_id    uuid        not null,
  sequence  integer     not null,

  constraint leases_pkey primary key (queue_id, due_at, job_id, sequence)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
comment on table euterpe.leases is
  'Look at this item after due_at. Heartbeats do not touch it: reclaim re-files what was renewed and forgets what ended.';
comment on column euterpe.leases.queue_id is 'The line the item was claimed from.';
comment on column euterpe.leases.due_at is 'When its lease would lapse if nobody had renewed it.';
comment on column euterpe.leases.job_id is 'The job.';
comment on column euterpe.leases.sequence is '0: the job itself. Else: that event of the job.';

create table euterpe.queue_samples (
  queue_id            smallint    not null,
  sampled_at          timestamptz not null,
  ready_count         bigint      not null,
  delayed_count       bigint      not null,
  leased_count        bigint      not null,
  oldest_ready_age_ms bigint,

  constraint queue_samples_pkey primary key (queue_id, sampled_at)
);
comment on table euterpe.queue_samples is
  'Depth and age of each line, sampled by upkeep_v1 every ten seconds, so that nobody counts rows per scrape or request.';
comment on column euterpe.queue_samples.queue_id is 'The line.';
comment on column euterpe.queue_samples.sampled_at is 'When.';
comment on column euterpe.queue_samples.ready_count is 'Entries that may be claimed; counted up to 100,000.';
comment on column euterpe.queue_samples.delayed_count is 'Entries that wait for their time; counted up to 100,000.';
comment on column euterpe.queue_samples.leased_count is 'Entries of leases, litter included; counted up to 100,000.';
comment on column euterpe.queue_samples.oldest_ready_age_ms is 'Age of the job at the head of the line; null when the line is empty.';
