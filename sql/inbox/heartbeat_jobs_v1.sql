-- heartbeat_jobs_v1: renew the leases of a worker's jobs and take in their progress.
--
--   caller  euterpe-transcode, at least three times per lease, one call for all jobs in hand
--   writes  inbox_jobs (lease_expires_at, heartbeat_at, progress); never leases
--   raises  22023, UT011  see _insist_batch
--   answers per job: ok · stale (stop, write nothing) · cancelled (stop: somebody wants it stopped)
--   see     contract §4; docs/ownership.md
--
-- A heartbeat never shortens a lease: reclaim would not look before the longer one is over.
-- A lease that has lapsed but was not taken is renewed: a database that was away for a minute must not
-- kill every running job.
create or replace function euterpe.heartbeat_jobs_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[],
  p_progress       jsonb[],
  p_lease_seconds  integer default null
)
returns table (
  job_id           uuid,
  outcome          text,
  lease_expires_at timestamptz
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now timestamptz := _now();
begin
  perform _insist_batch('heartbeat_jobs_v1', p_job_ids, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_progress)]);
  if p_lease_seconds not between 5 and 3600 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('heartbeat_jobs_v1: p_lease_seconds=%s must be in 5..3600', p_lease_seconds);
  end if;
  perform _lock_jobs(p_job_ids);

  return query
  with said as materialized (
    select s.job_id, s.claim_version, s.claim_token, s.nth,
           case when jsonb_typeof(s.progress) = 'object' and octet_length(s.progress::text) <= 4096
                then s.progress end as progress
      from unnest(p_job_ids, p_claim_versions, p_claim_tokens, p_progress)
           with ordinality as s (job_id, claim_version, claim_token, progress, nth)
  ), renewed as (
    update inbox_jobs j
       set lease_expires_at = greatest(j.lease_expires_at,
                                       v_now + make_interval(secs => coalesce(p_lease_seconds, q.lease_seconds))),
           heartbeat_at     = v_now,
           progress         = coalesce(s.progress || jsonb_build_object('updated_at', _utc(v_now)), j.progress)
      from said s, queues q
     where j.job_id = any (p_job_ids)
       and j.job_id = s.job_id
       and j.claim_version = s.claim_version
       and j.claim_token = s.claim_token
       and j.worker_id = p_worker_id
       and q.queue_id = j.queue_id
    returning j.job_id, j.lease_expires_at
  )
  select s.job_id,
         case when r.job_id is not null then 'ok'
              when j.claim_version = s.claim_version and j.last_error ->> 'code' = 'cancelled' then 'cancelled'
              else 'stale' end,
         r.lease_expires_at
    from said s
    left join renewed r on r.job_id = s.job_id
    left join (select i.job_id, i.claim_version, i.last_error
                 from inbox_jobs i where i.job_id = any (p_job_ids)) j on j.job_id = s.job_id
   order by s.nth;
end;
$$;

comment on function euterpe.heartbeat_jobs_v1 is
  'Renews the leases of a worker''s jobs and takes in their progress; answers ok, stale or cancelled per job.';
revoke execute on function euterpe.heartbeat_jobs_v1 from public;
