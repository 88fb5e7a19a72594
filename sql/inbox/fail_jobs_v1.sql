-- fail_jobs_v1: a worker's jobs have failed; error_codes says what follows.
--
--   caller  euterpe-transcode
--   writes  inbox_jobs, through _end_or_requeue; ready or delayed for what is tried again
--   emits   queued (it will be tried again) · failed (rests) · failed and dead_letter
--   raises  22023, UT011  see _insist_batch
--   answers per job: ok · stale · cancelled · illegal; with where it went and when it runs again
--   see     contract §5; design §5.5, §5.7
--
-- p_details takes what the requester should see of it: message, phase, http_status, provider_code.
-- A failure before an execution started costs no attempt, but the twentieth of these ends the job, as with leases
-- that lapse unstarted.
-- retry_after_seconds is a lower bound for the wait; the wait itself follows the queue's backoff.
create or replace function euterpe.fail_jobs_v1(
  p_worker_id           text,
  p_job_ids             uuid[],
  p_claim_versions      bigint[],
  p_claim_tokens        uuid[],
  p_codes               text[],
  p_details             jsonb[],
  p_retry_after_seconds integer[]
)
returns table (
  job_id    uuid,
  outcome   text,
  to_status text,
  run_at    timestamptz
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now   timestamptz := _now();
  v_steps _step[];
begin
  perform _insist_batch('fail_jobs_v1', p_job_ids, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_codes),
    cardinality(p_details), cardinality(p_retry_after_seconds)]);
  perform _lock_jobs(p_job_ids);

  v_steps := array(
    select (s.job_id, d.to_status, coalesce(s.claim_version, 0), s.claim_token, p_worker_id, null, null,
            c.code,
            jsonb_build_object(
              'code', c.code, 'class', c.class, 'message', left(s.detail ->> 'message', 2000),
              'retryable', d.to_status = 'queued', 'phase', coalesce(s.detail ->> 'phase', j.status),
              'attempt', j.attempt_count, 'http_status', s.detail -> 'http_status',
              'provider_code', left(s.detail ->> 'provider_code', 200), 'occurred_at', _utc(v_now)),
            null, null, null,
            case when d.to_status = 'queued'
                 then v_now + make_interval(secs => greatest(
                        _backoff_ms(q.backoff_base_ms, q.backoff_factor, q.backoff_cap_ms,
                                    j.attempt_count + j.unstarted_expiries
                                    + case when c.policy = 'retry_slow' then 4 else 0 end,
                                    s.random) / 1000.0,
                        least(coalesce(s.retry_after_seconds, 0), 86400))) end,
            null)::_step
      from unnest(p_job_ids, p_claim_versions, p_claim_tokens, p_codes, p_details, p_retry_after_seconds,
                  array(select random() from generate_series(1, cardinality(p_job_ids))))
           as s (job_id, claim_version, claim_token, code, detail, retry_after_seconds, random)
      left join (select i.job_id, i.queue_id, i.status, i.attempt_count, i.max_attempts, i.unstarted_expiries
                   from inbox_jobs i where i.job_id = any (p_job_ids)) j on j.job_id = s.job_id
      left join queues q on q.queue_id = j.queue_id
      left join error_codes e on e.code = s.code
     cross join lateral (
           select coalesce(s.code, 'internal') as code, coalesce(e.class, 'internal') as class,
                  coalesce(e.policy, 'retry') as policy) c
     cross join lateral (
           select case
                    when c.policy = 'dead_letter' or j.attempt_count >= j.max_attempts
                      or (j.status = 'claimed' and j.unstarted_expiries >= 19) then 'dead_letter'
                    when c.policy = 'rest' or j.attempt_count >= e.max_tries then 'failed'
                    else 'queued'
                  end as to_status) d);

  return query
  select o.job_id, o.outcome,
         case when o.outcome = 'ok' then s.to_status end,
         case when o.outcome = 'ok' then s.run_at end
    from _end_or_requeue(v_now, v_steps) o
    join unnest(v_steps) s on s.job_id = o.job_id;
end;
$$;

comment on function euterpe.fail_jobs_v1 is
  'A worker''s jobs have failed: each is tried again, rests or is buried, as error_codes and its budget say.';
revoke execute on function euterpe.fail_jobs_v1 from public;
