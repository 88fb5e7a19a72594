-- list_jobs_v1: a requester's own jobs, newest first, page by page.
--
--   caller  euterpe-api
--   writes  nothing
--   raises  22023  p_limit out of range
--   answers up to p_limit rows; the cursor for the next page is the last job_id. A page that looked at 10,000 jobs and
--           found fewer ends with a row whose status is null: go on after that one.
--   cost    an index range of the requester's jobs; at most 10,000 of them per call, however rare the status
--
-- between x and x, ordered by both: only an index that begins with the requester has that order, so nobody else's jobs
-- are walked past (see the view tenants).
create or replace function euterpe.list_jobs_v1(
  p_requester_id text,
  p_status       text    default null,
  p_external_id  text    default null,
  p_before       uuid    default null,
  p_limit        integer default 50
)
returns table (
  job_id        uuid,
  external_id   text,
  status        text,
  attempt_count integer,
  max_attempts  integer,
  error_code    text,
  created_at    timestamptz,
  updated_at    timestamptz,
  finished_at   timestamptz
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_before uuid    := coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  v_found  integer := 0;
  v_seen   integer := 0;
  v_job    record;
begin
  if coalesce(p_limit, 0) not between 1 and 100 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('list_jobs_v1: p_limit=%s must be in 1..100', p_limit);
  end if;

  for v_job in
    select j.job_id, j.external_id, j.status, j.attempt_count, j.max_attempts, j.last_error, j.created_at, j.updated_at,
           j.finished_at
      from inbox_jobs j
     where j.requester_id between p_requester_id and p_requester_id and j.job_id < v_before
       and (p_external_id is null or j.external_id = p_external_id)
     order by j.requester_id desc, j.job_id desc
     limit 10000
  loop
    v_seen := v_seen + 1;
    if p_status is null or v_job.status = p_status then
      return query
      select v_job.job_id, v_job.external_id, v_job.status, v_job.attempt_count, v_job.max_attempts,
             case when v_job.status <> 'succeeded' then v_job.last_error ->> 'code' end,
             v_job.created_at, v_job.updated_at, v_job.finished_at;
      v_found := v_found + 1;
      exit when v_found = p_limit;
    end if;
  end loop;
  if v_seen = 10000 and v_found < p_limit then
    return query
    select v_job.job_id, null::text, null::text, null::integer, null::integer, null::text, null::timestamptz,
           null::timestamptz, null::timestamptz;
  end if;
end;
$$;

comment on function euterpe.list_jobs_v1 is 'A requester''s own jobs, newest first, page by page.';
revoke execute on function euterpe.list_jobs_v1 from public;
