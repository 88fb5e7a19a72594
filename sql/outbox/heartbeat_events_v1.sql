-- heartbeat_events_v1: renew the leases of a worker's events.
--
--   caller  euterpe-webhook, three times per lease, one call for all events in hand
--   writes  job_outbox_events (lease_expires_at, heartbeat_at); never leases
--   raises  22023, UT011  see _insist_event_batch
--   answers per event: ok · stale (stop, send nothing)
--   see     contract §1, §4; heartbeat_jobs_v1 for the whys
create or replace function euterpe.heartbeat_events_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_sequences      integer[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[],
  p_lease_seconds  integer default null
)
returns table (
  job_id           uuid,
  sequence         integer,
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
  perform _insist_event_batch('heartbeat_events_v1', p_job_ids, p_sequences, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens)]);
  if p_lease_seconds not between 5 and 3600 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('heartbeat_events_v1: p_lease_seconds=%s must be in 5..3600', p_lease_seconds);
  end if;
  perform _lock_events(p_job_ids, p_sequences);

  return query
  with said as materialized (
    select s.job_id, s.sequence, s.claim_version, s.claim_token, s.nth
      from unnest(p_job_ids, p_sequences, p_claim_versions, p_claim_tokens)
           with ordinality as s (job_id, sequence, claim_version, claim_token, nth)
  ), renewed as (
    update job_outbox_events e
       set lease_expires_at = greatest(e.lease_expires_at,
                                       v_now + make_interval(secs => coalesce(p_lease_seconds, q.lease_seconds))),
           heartbeat_at     = v_now
      from said s, queues q
     where e.job_id = any (p_job_ids)
       and e.job_id = s.job_id
       and e.sequence = s.sequence
       and e.claim_version = s.claim_version
       and e.claim_token = s.claim_token
       and e.worker_id = p_worker_id
       and q.queue_id = e.queue_id
    returning e.job_id, e.sequence, e.lease_expires_at
  )
  select s.job_id, s.sequence, case when r.job_id is not null then 'ok' else 'stale' end, r.lease_expires_at
    from said s
    left join renewed r on r.job_id = s.job_id and r.sequence = s.sequence
   order by s.nth;
end;
$$;

comment on function euterpe.heartbeat_events_v1 is
  'Renews the leases of a worker''s events; answers ok or stale per event.';
revoke execute on function euterpe.heartbeat_events_v1 from public;
