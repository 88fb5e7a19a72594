-- The ground: where the ledger of loaded functions lives, and the schema of the cursors.
-- Schema euterpe itself is made by euterpe-migrate, which keeps refinery's schema_history in it.

create schema euterpe_line;
comment on schema euterpe is
  'Euterpe: a Postgres-native queue service. Start with \dv euterpe.* and \df+ euterpe.*_v1.';
comment on schema euterpe_line is
  'Cursors of the lines, kept in sequences because those are not versioned: a claim reads them without meeting dead rows.';

create table euterpe.sql_functions (
  path       text        not null,
  sha256     text        not null,
  release    text        not null,
  loaded_at  timestamptz not null,

  constraint sql_functions_pkey primary key (path),
  constraint sql_functions_sha256_is_hex check (sha256 ~ '^[0-9a-f]{64}$'),
  constraint sql_functions_release_is_three_numbers check (release ~ '^[0-9]+\.[0-9]+\.[0-9]+$')
);
comment on table euterpe.sql_functions is
  'Ledger of euterpe-migrate: which file of sql/ is loaded here, and in which wording.';
comment on column euterpe.sql_functions.path is 'File below sql/, e.g. inbox/claim_jobs_v1.sql.';
comment on column euterpe.sql_functions.sha256 is 'SHA-256 of the file as loaded.';
comment on column euterpe.sql_functions.release is 'Release of euterpe-migrate that loaded it.';
comment on column euterpe.sql_functions.loaded_at is 'When it was loaded.';

comment on table euterpe.schema_history is 'Ledger of refinery: which migration was applied, and when.';
comment on column euterpe.schema_history.version is 'Number of the migration.';
comment on column euterpe.schema_history.name is 'What it does.';
comment on column euterpe.schema_history.applied_on is 'When it was applied.';
comment on column euterpe.schema_history.checksum is 'Of name, number and text: a migration is frozen once released.';
