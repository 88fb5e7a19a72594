-- What people do to one job is found from the job.

alter table euterpe.operator_log
  add column job_id uuid;
-- squawk-ignore require-concurrent-index-creation
create index operator_log_by_job on euterpe.operator_log (job_id, at) where job_id is not null;
comment on column euterpe.operator_log.job_id is 'The job it was done to; null: not about one job. Shown in job_timeline.';
