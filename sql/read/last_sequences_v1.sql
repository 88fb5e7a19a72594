-- last_sequences_v1: how far jobs are, for whoever waits for them to move.
--
--   caller  euterpe-api: one call for all its wait= callers
--   writes  nothing
--   raises  22023  more than 1000 jobs
--   answers a row per job that exists
create or replace function euterpe.last_sequences_v1(
  p_job_ids uuid[]
)
returns table (
  job_id        uuid,
  last_sequence integer
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  if coalesce(cardinality(p_job_ids), 0) not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('last_sequences_v1: takes 1 to 1000 jobs, got %s', cardinality(p_job_ids));
  end if;
  return query
  select j.job_id, j.last_sequence from inbox_jobs j where j.job_id = any (p_job_ids);
end;
$$;

comment on function euterpe.last_sequences_v1 is 'The number of the newest event of each job.';
revoke execute on function euterpe.last_sequences_v1 from public;
