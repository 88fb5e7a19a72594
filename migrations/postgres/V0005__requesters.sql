-- Requesters, their keys and secrets, and what makes their retries harmless (contract §6, §9).

create table euterpe.requesters (
  requester_id      text        not null,
  requester_no      integer     not null generated always as identity,
  display_name      text,
  weight            smallint    not null default 1,
  max_priority      smallint    not null default 1000,
  max_open_jobs     integer     not null default 100000,
  requests_per_second integer   not null default 20,
  request_burst     integer     not null default 60,
  disabled_at       timestamptz,
  created_at        timestamptz not null,

  constraint requesters_pkey primary key (requester_id),
  constraint requesters_no_unique unique (requester_no),
  constraint requesters_id_is_a_slug check (requester_id ~ '^[a-z0-9_-]{1,64}$'),
  constraint requesters_display_name_bounded check (length(display_name) <= 200),
  constraint requesters_weight_bounded check (weight between 1 and 100),
  constraint requesters_max_priority_bounded check (max_priority between 0 and 1000),
  constraint requesters_max_open_jobs_bounded check (max_open_jobs between 1 and 100000000),
  constraint requesters_rate_bounded check (
    requests_per_second between 1 and 100000 and request_burst between 1 and 100000)
);
comment on table euterpe.requesters is 'Who may ask for work, and with what share of it.';
comment on column euterpe.requesters.requester_id is 'A slug: [a-z0-9_-]{1,64}.';
comment on column euterpe.requesters.requester_no is 'Names its sequences: euterpe_line.q<queue_id>_r<requester_no>.';
comment on column euterpe.requesters.display_name is 'For people.';
comment on column euterpe.requesters.weight is 'Share of a line against other requesters, 1 to 100.';
comment on column euterpe.requesters.max_priority is 'Higher priorities are lowered to this.';
comment on column euterpe.requesters.max_open_jobs is 'Unfinished jobs it may have at once.';
comment on column euterpe.requesters.requests_per_second is 'Rate limit of the HTTP tier, per pod.';
comment on column euterpe.requesters.request_burst is 'How many requests may come at once.';
comment on column euterpe.requesters.disabled_at is 'Since when it may not ask; its running jobs go on.';
comment on column euterpe.requesters.created_at is 'When it was added.';

create table euterpe.api_keys (
  key_id         text        not null,
  requester_id   text        not null,
  key_hash       bytea       not null,
  pepper_version smallint    not null,
  scopes         text[]      not null,
  created_at     timestamptz not null,
  expires_at     timestamptz,
  revoked_at     timestamptz,
  last_used_at   timestamptz,

  constraint api_keys_pkey primary key (key_id),
  constraint api_keys_requester_fkey foreign key (requester_id) references euterpe.requesters (requester_id),
  constraint api_keys_key_id_is_short check (key_id ~ '^[a-z0-9]{8,32}$'),
  constraint api_keys_hash_is_sha256 check (length(key_hash) = 32),
  constraint api_keys_scopes_known check (
    scopes <@ array['transcode:write', 'transcode:read'] and cardinality(scopes) > 0)
);
create index api_keys_by_requester on euterpe.api_keys (requester_id);
comment on table euterpe.api_keys is 'Keys of the HTTP tier. Only a keyed hash is kept.';
comment on column euterpe.api_keys.key_id is 'The public part of the key.';
comment on column euterpe.api_keys.requester_id is 'Whose key it is.';
comment on column euterpe.api_keys.key_hash is 'HMAC-SHA256 of the secret part under the pepper.';
comment on column euterpe.api_keys.pepper_version is 'Which pepper.';
comment on column euterpe.api_keys.scopes is 'What it may do: transcode:write, transcode:read.';
comment on column euterpe.api_keys.created_at is 'When it was made.';
comment on column euterpe.api_keys.expires_at is 'Not valid from then on; null: no end.';
comment on column euterpe.api_keys.revoked_at is 'Not valid since.';
comment on column euterpe.api_keys.last_used_at is 'Written at most once a minute.';

create table euterpe.signing_secrets (
  requester_id       text        not null,
  version            integer     not null,
  secret_encrypted   bytea       not null,
  secret_dek_wrapped bytea       not null,
  secret_kek_id      text        not null,
  encryption_version smallint    not null,
  created_at         timestamptz not null,
  activated_at       timestamptz,
  retired_at         timestamptz,

  constraint signing_secrets_pkey primary key (requester_id, version),
  constraint signing_secrets_requester_fkey foreign key (requester_id) references euterpe.requesters (requester_id),
  constraint signing_secrets_sizes_bounded check (
    length(secret_encrypted) between 1 and 4096 and length(secret_dek_wrapped) between 1 and 1024)
);
comment on table euterpe.signing_secrets is 'Webhook signing secrets, sealed like credentials; two are valid while one is rotated.';
comment on column euterpe.signing_secrets.requester_id is 'Whose webhooks it signs.';
comment on column euterpe.signing_secrets.version is '1, 2, 3, …; bound into the ciphertext.';
comment on column euterpe.signing_secrets.secret_encrypted is 'Ciphertext under a key of its own (DEK).';
comment on column euterpe.signing_secrets.secret_dek_wrapped is 'That key, wrapped by the KEK.';
comment on column euterpe.signing_secrets.secret_kek_id is 'Which KEK wrapped it.';
comment on column euterpe.signing_secrets.encryption_version is 'Format of the ciphertext.';
comment on column euterpe.signing_secrets.created_at is 'When it was made.';
comment on column euterpe.signing_secrets.activated_at is 'Since when the contract''s own signature is made with it.';
comment on column euterpe.signing_secrets.retired_at is 'Since when nothing is signed with it.';

create table euterpe.idempotency_keys (
  requester_id    text        not null,
  idempotency_key text        not null,
  request_hash    bytea       not null,
  hash_version    smallint    not null,
  response        bytea       not null,
  job_id          uuid        not null,
  created_at      timestamptz not null,
  expires_at      timestamptz not null,

  constraint idempotency_keys_pkey primary key (requester_id, idempotency_key),
  constraint idempotency_keys_key_visible_ascii check (idempotency_key ~ '^[\x21-\x7e]{1,255}$'),
  constraint idempotency_keys_hash_is_sha256 check (length(request_hash) = 32),
  constraint idempotency_keys_response_bounded check (length(response) <= 65536),
  constraint idempotency_keys_live_three_days check (expires_at - created_at >= interval '72 hours')
);
create index idempotency_keys_by_expiry on euterpe.idempotency_keys (expires_at);
comment on table euterpe.idempotency_keys is
  'Contract §9: the same key and hash get the stored answer; another hash is a conflict.';
comment on column euterpe.idempotency_keys.requester_id is 'Whose key: keys of two requesters never meet.';
comment on column euterpe.idempotency_keys.idempotency_key is '1 to 255 visible ASCII characters.';
comment on column euterpe.idempotency_keys.request_hash is 'SHA-256 of the canonical request.';
comment on column euterpe.idempotency_keys.hash_version is 'Which canonical form.';
comment on column euterpe.idempotency_keys.response is 'The answer, byte for byte.';
comment on column euterpe.idempotency_keys.job_id is 'The job it made.';
comment on column euterpe.idempotency_keys.created_at is 'When it was first used.';
comment on column euterpe.idempotency_keys.expires_at is 'From then on the key is free again.';
