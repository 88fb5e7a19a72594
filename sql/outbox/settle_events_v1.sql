-- settle_events_v1: what came of a worker's deliveries.
--
--   caller  euterpe-webhook
--   writes  outbox_attempts; job_outbox_events (delivered, dead_letter, or back in the line); inbox_jobs
--           (head_sequence, callback_trouble); endpoint_circuits, through _note_deliveries
--   raises  22023, UT011  see _insist_event_batch
--   answers per event: ok · stale; with where it went, when it is tried again, and whether a later event of its job
--           is in the line now
--   see     contract §5, §8; design §4.5, §5.7; docs/outbox.md
--
-- An error class of null means delivered; any other is looked up in delivery_classes. The attempt is written in the
-- same transaction, behind the same fence: a worker that lost its claim leaves no trace.
-- retry_after_seconds is a lower bound for the wait; the wait itself follows the queue's backoff.
--
-- The job is locked first, and the next event is looked for in a later statement (_advance_heads): in one statement
-- the look would use a snapshot from before the lock, and an event written meanwhile would be stranded.
create or replace function euterpe.settle_events_v1(
  p_worker_id           text,
  p_job_ids             uuid[],
  p_sequences           integer[],
  p_claim_versions      bigint[],
  p_claim_tokens        uuid[],
  p_error_classes       text[],
  p_http_statuses       integer[],
  p_durations_ms        integer[],
  p_answers             bytea[],
  p_retry_after_seconds integer[]
)
returns table (
  job_id    uuid,
  sequence  integer,
  outcome   text,
  to_status text,
  run_at    timestamptz,
  released  boolean
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now       timestamptz;
  v_retry     queues%rowtype;
  v_settled   _settled[];
  v_ended     uuid[];
  v_released  uuid[];
begin
  perform _insist_event_batch('settle_events_v1', p_job_ids, p_sequences, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_error_classes),
    cardinality(p_http_statuses), cardinality(p_durations_ms), cardinality(p_answers),
    cardinality(p_retry_after_seconds)]);
  perform _lock_jobs(p_job_ids);
  perform _lock_events(p_job_ids, p_sequences);
  v_now := _now();
  select q.* into strict v_retry from queues q where q.name = 'webhook_retry';

  v_settled := array(
    select (e.job_id, e.sequence, e.requester_id, e.callback_origin, d.to_status,
            case when d.to_status = 'waiting'
                 then v_now + make_interval(secs => greatest(
                        _backoff_ms(v_retry.backoff_base_ms, v_retry.backoff_factor, v_retry.backoff_cap_ms,
                                    e.attempt_count + 1 - e.attempts_before, s.random) / 1000.0,
                        least(coalesce(s.retry_after_seconds, 0), 86400))) end,
            s.error_class, case when s.http_status between 100 and 599 then s.http_status end,
            greatest(coalesce(s.duration_ms, 0), 0), substring(s.answer from 1 for 4096),
            case when s.error_class is not null then coalesce(c.policy, 'retry') end, coalesce(c.trips, false),
            e.sequence = j.head_sequence)::_settled
      from unnest(p_job_ids, p_sequences, p_claim_versions, p_claim_tokens, p_error_classes, p_http_statuses,
                  p_durations_ms, p_answers, p_retry_after_seconds,
                  array(select random() from generate_series(1, cardinality(p_job_ids))))
           as s (job_id, sequence, claim_version, claim_token, error_class, http_status, duration_ms, answer,
                 retry_after_seconds, random)
      join job_outbox_events e
        on e.job_id = any (p_job_ids) and e.job_id = s.job_id and e.sequence = s.sequence
       and e.claim_version = s.claim_version and e.claim_token = s.claim_token and e.worker_id = p_worker_id
      join inbox_jobs j on j.job_id = any (p_job_ids) and j.job_id = s.job_id
      left join delivery_classes c on c.error_class = s.error_class
     cross join lateral (
           select case when s.error_class is null then 'delivered'
                       when c.policy <> 'retry' or e.attempt_count + 1 >= e.max_attempts then 'dead_letter'
                       else 'waiting' end as to_status) d);

  if cardinality(v_settled) > 0 then
    perform _write_settled(v_now, p_worker_id, v_settled);
    perform _file_events(array_agg(s.job_id), array_agg(s.sequence), array_agg(v_retry.queue_id), array_agg(s.run_at),
                         false)
       from unnest(v_settled) s
      where s.to_status = 'waiting'
     having count(*) > 0;

    -- Only the settling of a head lets a later event go: a redelivery neither gates nor is gated.
    v_ended := array(select s.job_id from unnest(v_settled) s where s.is_head and s.to_status <> 'waiting');
    if cardinality(v_ended) > 0 then
      v_released := _advance_heads(v_ended);
    end if;
    perform _note_deliveries(v_now, v_settled);
  end if;

  return query
  select s.job_id, s.sequence, case when e.job_id is not null then 'ok' else 'stale' end,
         case when e.to_status = 'waiting' then 'ready' else e.to_status end, e.run_at,
         coalesce(e.is_head and s.job_id = any (v_released), false)
    from unnest(p_job_ids, p_sequences) with ordinality as s (job_id, sequence, nth)
    left join unnest(v_settled) e on e.job_id = s.job_id and e.sequence = s.sequence
   order by s.nth;
end;
$$;

comment on function euterpe.settle_events_v1 is
  'What came of a worker''s deliveries: each event is delivered, tried again or given up; the attempt is written down.';
revoke execute on function euterpe.settle_events_v1 from public;
