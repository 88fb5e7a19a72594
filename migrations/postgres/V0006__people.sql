-- Who is there, and what people did.

create table euterpe.workers (
  worker_id   text        not null,
  kind        text        not null,
  release     text        not null,
  started_at  timestamptz not null,
  seen_at     timestamptz not null,
  stopped_at  timestamptz,
  detail      jsonb,

  constraint workers_pkey primary key (worker_id),
  constraint workers_id_bounded check (length(worker_id) between 1 and 300),
  constraint workers_kind_known check (kind in ('api', 'transcode', 'webhook', 'other'))
);
comment on table euterpe.workers is 'Processes that announced themselves. For people: leases never depend on it.';
comment on column euterpe.workers.worker_id is 'Pod name, # and eight digits of its boot id.';
comment on column euterpe.workers.kind is 'api, transcode, webhook, other.';
comment on column euterpe.workers.release is 'Release it runs.';
comment on column euterpe.workers.started_at is 'When it announced itself.';
comment on column euterpe.workers.seen_at is 'When it last did.';
comment on column euterpe.workers.stopped_at is 'When it said goodbye, or upkeep found it absent.';
comment on column euterpe.workers.detail is 'What it says of itself: capacity, sandbox level, ….';

create table euterpe.operator_log (
  log_id     bigint      not null generated always as identity,
  at         timestamptz not null,
  who        text        not null,
  act        text        not null,
  target     text        not null,
  why        text,

  constraint operator_log_pkey primary key (log_id)
);
comment on table euterpe.operator_log is 'What people did to the queue: who by session_user, what, when, why.';
comment on column euterpe.operator_log.log_id is 'In order.';
comment on column euterpe.operator_log.at is 'When.';
comment on column euterpe.operator_log.who is 'session_user.';
comment on column euterpe.operator_log.act is 'The function, without its version.';
comment on column euterpe.operator_log.target is 'Queue, requester, job or key.';
comment on column euterpe.operator_log.why is 'In the operator''s words.';
