-- release_jobs_v1: a worker hands jobs back without blaming them.
--
--   caller  euterpe-transcode: claims it cannot start, a drain, no disk, credentials that must come first
--   writes  inbox_jobs, through _end_or_requeue; ready, or delayed when p_delay_seconds > 0
--   emits   one queued event per job, with the reason
--   raises  22023, UT011  see _insist_batch
--   answers per job: ok · stale · cancelled · illegal
--   see     design §5.3
--
-- An attempt that had started is given back: always for credentials, disk and an unknown key, at most
-- three times per job for worker_shutdown. When it is not given back and was the last one, the job ends.
create or replace function euterpe.release_jobs_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[],
  p_reasons        text[],
  p_delay_seconds  integer[]
)
returns table (
  job_id  uuid,
  outcome text
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
  perform _insist_batch('release_jobs_v1', p_job_ids, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_reasons),
    cardinality(p_delay_seconds)]);
  if not p_reasons <@ array['not_started', 'worker_shutdown', 'credentials', 'disk', 'unknown_kek'] then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'release_jobs_v1: p_reasons may hold not_started, worker_shutdown, credentials, disk, unknown_kek';
  end if;
  perform _lock_jobs(p_job_ids);

  return query
  select o.job_id, o.outcome
    from _end_or_requeue(v_now, array(
           select (s.job_id,
                   case when g.gives_back or j.attempt_count < j.max_attempts then 'queued' else 'dead_letter' end,
                   coalesce(s.claim_version, 0), s.claim_token, p_worker_id, null, null, s.reason,
                   case when not g.gives_back and j.attempt_count >= j.max_attempts then
                        jsonb_build_object('code', s.reason, 'class', 'control', 'retryable', false,
                          'message', 'handed back on its last attempt', 'phase', j.status,
                          'attempt', j.attempt_count, 'occurred_at', _utc(v_now)) end,
                   null, null, g.gives_back,
                   case when s.delay_seconds > 0
                        then v_now + make_interval(secs => least(s.delay_seconds, 86400)) end,
                   null)::_step
             from unnest(p_job_ids, p_claim_versions, p_claim_tokens, p_reasons, p_delay_seconds)
                  as s (job_id, claim_version, claim_token, reason, delay_seconds)
             left join (select i.job_id, i.status, i.attempt_count, i.max_attempts, i.shutdown_releases
                          from inbox_jobs i where i.job_id = any (p_job_ids)) j on j.job_id = s.job_id
            cross join lateral (
                  select j.status in ('fetching', 'processing', 'uploading')
                         and (s.reason in ('credentials', 'disk', 'unknown_kek')
                              or (s.reason = 'worker_shutdown' and j.shutdown_releases < 3)) as gives_back) g)) o;
end;
$$;

comment on function euterpe.release_jobs_v1 is 'A worker hands jobs back without blaming them; answers per job.';
revoke execute on function euterpe.release_jobs_v1 from public;
