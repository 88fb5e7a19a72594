-- _transition: the one place that changes the status of a job.
--
--   caller  claim_jobs_v1, advance_jobs_v1, complete_jobs_v1, cancel_job_v1, redrive_job_v1, _end_or_requeue; they hold
--           the row locks
--   writes  inbox_jobs (status and everything that follows from it), last_sequence + 1; job_secrets and
--           secret_expiries, through _forget_credentials
--   emits   one event per step, after its update hit; in the line at once when none of that job is on its way
--   answers per step: ok · stale (not the owner any more) · cancelled (stale, because of a cancel) ·
--           illegal (no such step in job_transitions, or it needs budget and there is none)
--   see     contract §3, §4, §8; docs/ownership.md
--
-- What a step does to the row follows from where it goes: a claim brings a new owner, version and token;
-- fetching starts an attempt; leaving the running states clears owner, lease and token, which is what
-- makes a former owner stale. The fence stands in the update itself, so that a step judged a moment ago
-- on a row that has moved since writes nothing and tells nobody. The same update decides whether the event may be
-- delivered now: head_sequence is on the locked row, so no snapshot can be too old for it (_advance_heads).
-- job_id = any (v_ids) comes first everywhere: it prunes partitions, a join does not.
create or replace function euterpe._transition(
  p_now   timestamptz,
  p_steps euterpe._step[]
)
returns table (
  job_id        uuid,
  outcome       text,
  from_status   text,
  queue_id      smallint,
  line_key      bigint,
  attempt_count integer
)
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ids        uuid[] := array(select s.job_id from unnest(p_steps) s);
  v_answered   uuid[];
  v_outcomes   text[];
  v_froms      text[];
  v_queues     smallint[];
  v_keys       bigint[];
  v_attempts   integer[];
  v_heads      uuid[];
  v_sequences  integer[];
  v_ended      uuid[];
  v_resting    uuid[];
begin
  with judged as materialized (
    select s.*,
           j.status as from_status,
           j.worker_id as from_worker_id,
           case
             when j.job_id is null then 'stale'
             when s.claim_version is not null
              and (j.claim_version, j.claim_token, j.worker_id)
                  is distinct from (s.claim_version, s.claim_token, s.worker_id)
             then case when j.claim_version = s.claim_version and j.last_error ->> 'code' = 'cancelled'
                       then 'cancelled' else 'stale' end
             when t.to_status is null or (t.needs_budget and j.attempt_count >= j.max_attempts) then 'illegal'
             else 'ok'
           end as verdict,
           coalesce(j.event_filter && array['transcode.*', 'transcode.' || s.to_status], false)
           and j.callback_trouble is distinct from 'gone' as wanted
      from unnest(p_steps) s
      left join (select i.job_id, i.status, i.worker_id, i.claim_version, i.claim_token,
                        i.last_error, i.attempt_count, i.max_attempts, i.event_filter, i.callback_trouble
                   from inbox_jobs i
                  where i.job_id = any (v_ids)) j on j.job_id = s.job_id
      left join job_transitions t on t.from_status = j.status and t.to_status = s.to_status
  ), moved as (
    update inbox_jobs j
       set status             = d.to_status,
           worker_id          = case when d.to_status = 'claimed' then d.worker_id
                                     when d.to_status in ('fetching', 'processing', 'uploading') then j.worker_id end,
           lease_expires_at   = case when d.to_status = 'claimed' then d.lease_expires_at
                                     when d.to_status in ('fetching', 'processing', 'uploading') then j.lease_expires_at end,
           heartbeat_at       = case when d.to_status in ('claimed', 'fetching', 'processing', 'uploading') then p_now end,
           claim_version      = j.claim_version + (d.to_status = 'claimed')::integer,
           claim_token        = case when d.to_status = 'claimed' then d.new_token
                                     when d.to_status in ('fetching', 'processing', 'uploading') then j.claim_token end,
           attempt_count      = j.attempt_count + (d.to_status = 'fetching')::integer
                                - coalesce(d.gives_back, false)::integer,
           unstarted_expiries = case when d.to_status = 'fetching' then 0
                                     when d.from_status = 'claimed' and d.to_status = 'queued'
                                      and (d.reason = 'lease_expired' or d.error is not null) then j.unstarted_expiries + 1
                                     else j.unstarted_expiries end,
           shutdown_releases  = j.shutdown_releases
                                + (d.reason = 'worker_shutdown' and coalesce(d.gives_back, false))::integer,
           line_seq           = d.line_seq,
           run_at             = d.run_at,
           last_sequence      = j.last_sequence + 1,
           head_sequence      = case when d.wanted then coalesce(j.head_sequence, j.last_sequence + 1)
                                     else j.head_sequence end,
           progress           = case when d.to_status not in ('queued', 'claimed') then j.progress end,
           last_error         = case when d.to_status <> 'succeeded' then coalesce(d.error, j.last_error) end,
           ended_as           = case when d.to_status in ('succeeded', 'dead_letter') then d.to_status end,
           started_at         = case when d.to_status = 'fetching' then coalesce(j.started_at, p_now) else j.started_at end,
           updated_at         = p_now,
           finished_at        = case when d.to_status in ('succeeded', 'failed', 'dead_letter')
                                     then coalesce(j.finished_at, p_now) end
      from judged d
     where j.job_id = any (v_ids)
       and j.job_id = d.job_id
       and d.verdict = 'ok'
       and j.status = d.from_status
       and (d.claim_version is null
            or (j.claim_version = d.claim_version and j.claim_token = d.claim_token and j.worker_id = d.worker_id))
    returning j.job_id, j.requester_id, j.external_id, j.last_sequence, j.claim_version, j.attempt_count,
              j.queue_id, j.line_key, j.last_error, j.head_sequence, j.callback_origin, j.credential_version,
              d.from_status, d.to_status, d.reason, d.outputs, d.wanted,
              coalesce(j.worker_id, d.from_worker_id) as worker_id,
              d.to_status in ('succeeded', 'dead_letter') or coalesce(d.final, false) as final
  ), told as (
    insert into job_outbox_events
           (job_id, sequence, requester_id, type, from_status, to_status, reason, claim_version_then,
            worker_id_then, payload, status, callback_origin, created_at, finished_at)
    select m.job_id, m.last_sequence, m.requester_id, 'transcode.' || m.to_status, m.from_status, m.to_status,
           m.reason, m.claim_version, m.worker_id,
           case when m.wanted then _event_payload(
             p_now, m.job_id, m.last_sequence, m.external_id, m.to_status, m.from_status, m.final, m.reason,
             m.attempt_count, r.metadata, m.outputs, m.last_error) end,
           case when m.wanted then 'waiting' else 'skipped' end,
           case when m.wanted then m.callback_origin end,
           p_now,
           case when m.wanted then null else p_now end
      from moved m
      left join job_requests r on r.job_id = any (v_ids) and r.job_id = m.job_id and m.wanted
  )
  select array_agg(d.job_id),
         array_agg(case when d.verdict = 'ok' and m.job_id is null then 'stale' else d.verdict end),
         array_agg(d.from_status), array_agg(m.queue_id), array_agg(m.line_key), array_agg(m.attempt_count),
         array_agg(m.job_id) filter (where m.head_sequence = m.last_sequence),
         array_agg(m.last_sequence) filter (where m.head_sequence = m.last_sequence),
         array_agg(m.job_id) filter (where m.credential_version > 0 and m.to_status in ('succeeded', 'dead_letter')),
         array_agg(m.job_id) filter (where m.credential_version > 0 and m.to_status = 'failed' and m.final)
    into v_answered, v_outcomes, v_froms, v_queues, v_keys, v_attempts, v_heads, v_sequences, v_ended, v_resting
    from judged d
    left join moved m on m.job_id = d.job_id;

  if v_heads is not null then
    perform _file_events(v_heads, v_sequences, null, null, true);
  end if;
  if v_ended is not null or v_resting is not null then
    perform _forget_credentials(p_now, v_ended, v_resting);
  end if;

  return query
  select o.job_id, o.outcome, o.from_status, o.queue_id, o.line_key, o.attempt_count
    from unnest(v_answered, v_outcomes, v_froms, v_queues, v_keys, v_attempts)
         as o (job_id, outcome, from_status, queue_id, line_key, attempt_count);
end;
$$;

comment on function euterpe._transition is
  'Moves jobs along job_transitions behind their fence and writes one event per step; answers per step.';
revoke execute on function euterpe._transition from public;
