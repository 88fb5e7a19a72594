-- release_events_v1: a worker hands events back without having tried them.
--
--   caller  euterpe-webhook: claims it cannot start, a host that is at its cap, a drain, a key it does not know
--   writes  job_outbox_events; ready, or delayed when p_delay_seconds > 0
--   raises  22023, UT011  see _insist_event_batch
--   answers per event: ok · stale
--   see     design §4.6
--
-- It costs no attempt, and the event keeps its place. What may be delivered next does not change, so the job is not
-- locked.
create or replace function euterpe.release_events_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_sequences      integer[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[],
  p_reasons        text[],
  p_delay_seconds  integer[]
)
returns table (
  job_id   uuid,
  sequence integer,
  outcome  text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now       timestamptz := _now();
  v_jobs      uuid[];
  v_sequences integer[];
  v_queues    smallint[];
  v_run_ats   timestamptz[];
begin
  perform _insist_event_batch('release_events_v1', p_job_ids, p_sequences, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_reasons),
    cardinality(p_delay_seconds)]);
  if not p_reasons <@ array['not_started', 'worker_shutdown', 'host_busy', 'unknown_kek'] then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'release_events_v1: p_reasons may hold not_started, worker_shutdown, host_busy, unknown_kek';
  end if;
  perform _lock_events(p_job_ids, p_sequences);

  with freed as (
    update job_outbox_events e
       set status           = 'waiting',
           worker_id        = null,
           lease_expires_at = null,
           heartbeat_at     = null,
           claim_token      = null,
           last_error       = case when s.reason in ('host_busy', 'unknown_kek')
                                   then jsonb_build_object('class', s.reason, 'occurred_at', _utc(v_now))
                                   else e.last_error end
      from unnest(p_job_ids, p_sequences, p_claim_versions, p_claim_tokens, p_reasons, p_delay_seconds)
           as s (job_id, sequence, claim_version, claim_token, reason, delay_seconds)
     where e.job_id = any (p_job_ids)
       and e.job_id = s.job_id
       and e.sequence = s.sequence
       and e.claim_version = s.claim_version
       and e.claim_token = s.claim_token
       and e.worker_id = p_worker_id
    returning e.job_id, e.sequence, e.queue_id,
              case when s.delay_seconds > 0 then v_now + make_interval(secs => least(s.delay_seconds, 86400)) end as run_at
  )
  select array_agg(f.job_id), array_agg(f.sequence), array_agg(f.queue_id), array_agg(f.run_at)
    into v_jobs, v_sequences, v_queues, v_run_ats
    from freed f;
  if v_jobs is not null then
    perform _file_events(v_jobs, v_sequences, v_queues, v_run_ats, false);
  end if;

  return query
  select s.job_id, s.sequence, case when f.job_id is not null then 'ok' else 'stale' end
    from unnest(p_job_ids, p_sequences) with ordinality as s (job_id, sequence, nth)
    left join unnest(v_jobs, v_sequences) as f (job_id, sequence)
      on f.job_id = s.job_id and f.sequence = s.sequence
   order by s.nth;
end;
$$;

comment on function euterpe.release_events_v1 is
  'A worker hands events back without having tried them; costs no attempt; answers per event.';
revoke execute on function euterpe.release_events_v1 from public;
