-- What people do to one job is found from the job; and they are told where to start.

comment on schema euterpe is
  'Euterpe: a Postgres-native queue service. Start with: table euterpe.help; then select * from euterpe.explain_job_v1(''…'').';

alter table euterpe.operator_log
  add column job_id uuid;
-- squawk-ignore require-concurrent-index-creation
create index operator_log_by_job on euterpe.operator_log (job_id, at) where job_id is not null;
comment on column euterpe.operator_log.job_id is 'The job it was done to; null: not about one job. Shown in job_timeline.';
