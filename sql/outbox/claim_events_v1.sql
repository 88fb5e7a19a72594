-- claim_events_v1: hand up to p_limit events that may be delivered to one worker, each behind a new fence.
--
--   caller  euterpe-webhook
--   writes  ready (deletes), job_outbox_events (owner, lease, claim_version + 1, claim_token), leases; delayed for what
--           must wait for its endpoint
--   raises  22023  p_limit, p_lease_seconds or p_worker_id out of range
--           UT006  no such queue
--           UT011  not read committed
--   see     contract §1, §4, §12; docs/ownership.md, docs/outbox.md
--
-- Line by line the protocol of claim_jobs_v1, see there for its whys. What is different: no transition is written (a
-- delivery is no step of the job), and an event whose endpoint's circuit is not closed goes to delayed instead, by the
-- same entry: it costs no attempt. Because a dead endpoint may own the head of the line, a claim that had to put events
-- aside looks further, up to twenty rounds.
create or replace function euterpe.claim_events_v1(
  p_queue         text,
  p_worker_id     text,
  p_limit         integer,
  p_lease_seconds integer default null
)
returns table (
  job_id           uuid,
  sequence         integer,
  event_id         text,
  requester_id     text,
  type             text,
  claim_version    bigint,
  claim_token      uuid,
  lease_expires_at timestamptz,
  attempt_count    integer,
  max_attempts     integer,
  callback_origin  text,
  payload          text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now       timestamptz := _now();
  v_queue     queues%rowtype;
  v_lease     integer;
  v_rounds    integer := 5;
  v_key       bigint;
  v_seq       bigint;
  v_ctids     tid[];
  v_keys      bigint[];
  v_seqs      bigint[];
  v_jobs      uuid[];
  v_sequences integer[];
  v_verdicts  text[];
  v_waits     timestamptz[];
  v_claimed   uuid[]    := '{}'::uuid[];
  v_numbers   integer[] := '{}'::integer[];
  v_tokens    uuid[];
  v_taken     bigint;
  v_filed     timestamptz;
begin
  perform _insist_read_committed();
  if coalesce(p_limit, 0) not between 1 and 1000 or p_lease_seconds not between 5 and 3600
     or coalesce(length(p_worker_id), 0) not between 1 and 300 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('claim_events_v1: p_limit=%s must be in 1..1000, p_lease_seconds=%s in 5..3600 '
                       'and p_worker_id have 1 to 300 characters', p_limit, p_lease_seconds);
  end if;
  select q.* into v_queue from queues q where q.name = p_queue and q.holds = 'events';
  if not found then
    raise exception using errcode = 'UT006', message = format('there is no queue %s for events', p_queue);
  end if;

  perform _tick_if_due(v_now, v_queue.queue_id, v_queue.holds, v_queue.lease_seconds);
  if v_queue.paused_at is not null then
    return;
  end if;

  v_lease := coalesce(p_lease_seconds, v_queue.lease_seconds);
  v_key   := pg_sequence_last_value(('euterpe_line.q' || v_queue.queue_id || '_floor')::regclass);
  v_seq   := pg_sequence_last_value(('euterpe_line.q' || v_queue.queue_id || '_floor_seq')::regclass) - 1;

  for v_round in 1 .. 200 loop
    exit when v_round > v_rounds;
    select array_agg(p.at), array_agg(p.key), array_agg(p.seq), array_agg(p.job_id), array_agg(p.sequence), max(p.key)
      into v_ctids, v_keys, v_seqs, v_jobs, v_sequences, v_key
      from _pick_entries(v_queue.queue_id, v_key, v_seq, p_limit - cardinality(v_claimed)) p;
    exit when v_jobs is null;
    v_seq := v_seqs[cardinality(v_seqs)];

    v_verdicts := _sort_event_entries(v_jobs, v_sequences, v_seqs);
    delete from ready r
     where r.ctid = any (array(
             select e.at from unnest(v_ctids, v_verdicts) as e (at, verdict) where e.verdict <> 'held'));
    v_rounds := greatest(v_rounds, case when 'litter' = any (v_verdicts) then v_round + 5
                                        when 'held' = any (v_verdicts) then 20 end);

    select array_agg(e.job_id order by e.nth), array_agg(e.sequence order by e.nth), array_agg(e.seq order by e.nth),
           array_agg(e.key order by e.nth)
      into v_jobs, v_sequences, v_seqs, v_keys
      from unnest(v_jobs, v_sequences, v_seqs, v_keys, v_verdicts) with ordinality
           as e (job_id, sequence, seq, key, verdict, nth)
     where e.verdict = 'mine';
    continue when v_jobs is null;

    v_waits := _wait_for_circuits(v_now, v_jobs, v_sequences, v_lease);
    if exists (select from unnest(v_waits) w where w is not null) then
      v_rounds := greatest(v_rounds, 20);
      perform _put_in_line(array_agg(v_queue.queue_id), array_agg(e.job_id), array_agg(e.sequence), array_agg(e.key),
                           array_agg(e.seq), array_agg(e.run_at), array_agg(o.requester_id || ' ' || o.callback_origin))
         from unnest(v_jobs, v_sequences, v_keys, v_seqs, v_waits) as e (job_id, sequence, key, seq, run_at)
         join job_outbox_events o on o.job_id = any (v_jobs) and o.job_id = e.job_id and o.sequence = e.sequence
        where e.run_at is not null;
    end if;

    v_claimed := v_claimed || array(
      select e.job_id from unnest(v_jobs, v_waits) with ordinality as e (job_id, run_at, nth)
       where e.run_at is null order by e.nth);
    v_numbers := v_numbers || array(
      select e.sequence from unnest(v_sequences, v_waits) with ordinality as e (sequence, run_at, nth)
       where e.run_at is null order by e.nth);
    v_taken := v_key;
    exit when cardinality(v_claimed) >= p_limit;
  end loop;

  if v_taken is not null then
    perform setval(('euterpe_line.q' || v_queue.queue_id || '_taken')::regclass, v_taken);
  end if;
  if cardinality(v_claimed) = 0 then
    return;
  end if;

  v_tokens := array(select gen_random_uuid() from unnest(v_claimed));
  -- The clock again, now that this transaction has an xid: what _safe_point relies on.
  v_filed := _now();
  insert into leases (queue_id, due_at, job_id, sequence)
  select v_queue.queue_id, greatest(v_now + make_interval(secs => v_lease), v_filed), c.job_id, c.sequence
    from unnest(v_claimed, v_numbers) as c (job_id, sequence);

  return query
  with taken as (
    update job_outbox_events e
       set status           = 'claimed',
           worker_id        = p_worker_id,
           lease_expires_at = v_now + make_interval(secs => v_lease),
           heartbeat_at     = v_now,
           claim_version    = e.claim_version + 1,
           claim_token      = c.token,
           line_seq         = null,
           run_at           = null
      from unnest(v_claimed, v_numbers, v_tokens) with ordinality as c (job_id, sequence, token, nth)
     where e.job_id = any (v_claimed)
       and e.job_id = c.job_id
       and e.sequence = c.sequence
    returning e.job_id, e.sequence, e.event_id, e.requester_id, e.type, e.claim_version, e.claim_token,
              e.lease_expires_at, e.attempt_count, e.max_attempts, e.callback_origin, e.payload, c.nth
  )
  select t.job_id, t.sequence, t.event_id, t.requester_id, t.type, t.claim_version, t.claim_token,
         t.lease_expires_at, t.attempt_count, t.max_attempts, t.callback_origin, t.payload
    from taken t
   order by t.nth;
end;
$$;

comment on function euterpe.claim_events_v1 is
  'Hands up to p_limit deliverable events to one worker, each under a new claim_version and claim_token.';
revoke execute on function euterpe.claim_events_v1 from public;
