-- _claimed_jobs: what a worker needs to know of the jobs it was just given, in the order given.
--
--   caller  claim_jobs_v1
create or replace function euterpe._claimed_jobs(
  p_job_ids uuid[]
)
returns table (
  job_id             uuid,
  requester_id       text,
  claim_version      bigint,
  claim_token        uuid,
  lease_expires_at   timestamptz,
  attempt_count      integer,
  max_attempts       integer,
  credential_version integer,
  external_id        text,
  request            jsonb
)
language plpgsql
stable
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  return query
  select j.job_id, j.requester_id, j.claim_version, j.claim_token, j.lease_expires_at, j.attempt_count,
         j.max_attempts, j.credential_version, j.external_id, r.request
    from unnest(p_job_ids) with ordinality as c (job_id, nth)
    join inbox_jobs j on j.job_id = any (p_job_ids) and j.job_id = c.job_id
    join job_requests r on r.job_id = any (p_job_ids) and r.job_id = c.job_id
   order by c.nth;
end;
$$;

comment on function euterpe._claimed_jobs is 'What a worker needs to know of the jobs it was just given.';
revoke execute on function euterpe._claimed_jobs from public;
