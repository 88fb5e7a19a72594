-- _reclaim_events: take back events whose lease has lapsed.
--
--   caller  _tick
--   writes  leases (deletes, re-files), job_outbox_events, ready; inbox_jobs for what is given up
--   see     contract §1, §4; _reclaim_jobs does the same for jobs
--
-- Nobody knows whether a delivery that was never settled arrived: it is sent again, with the same event_id. That
-- costs no attempt, but the twentieth time in a row it is given up, and the next event of its job may go.
-- The job is locked before the event, as everywhere; what somebody holds at this moment is left for the next tick.
create or replace function euterpe._reclaim_events(
  p_now      timestamptz,
  p_queue_id smallint,
  p_since    timestamptz,
  p_limit    integer
)
returns integer
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ctids     tid[];
  v_jobs      uuid[];
  v_sequences integer[];
  v_locked    uuid[];
  v_seen      integer;
  v_back      uuid[];
  v_numbers   integer[];
  v_dead      uuid[];
begin
  with due as materialized (
    select l.ctid as at, l.job_id, l.sequence
      from leases l
     where l.queue_id = p_queue_id
       and l.due_at >= p_since
       and l.due_at < p_now
     order by l.due_at
     limit p_limit
       for update skip locked
  )
  select array_agg(d.at), array_agg(d.job_id), array_agg(d.sequence) into v_ctids, v_jobs, v_sequences from due d;
  if v_jobs is null then
    return 0;
  end if;
  v_seen := cardinality(v_jobs);

  with locked as materialized (
    select j.job_id from inbox_jobs j where j.job_id = any (v_jobs) for no key update skip locked
  )
  select array_agg(l.job_id) into v_locked from locked l;

  -- What is known of each: its lease as it is now, or that there is no such event any more. An event that has changed
  -- the line since has another entry there, and this one is forgotten: else it would be fetched back to this line.
  with locked as materialized (
    select e.job_id, e.sequence, case when e.queue_id = p_queue_id then e.lease_expires_at end as lease_expires_at
      from job_outbox_events e
     where e.job_id = any (v_locked)
       and (e.job_id, e.sequence) in (select d.job_id, d.sequence from unnest(v_jobs, v_sequences) as d (job_id, sequence))
       for no key update skip locked
  ), judged as materialized (
    select d.at, d.job_id, d.sequence, l.lease_expires_at,
           l.job_id is not null
           or not exists (select from job_outbox_events e
                           where e.job_id = any (v_jobs) and e.job_id = d.job_id and e.sequence = d.sequence) as is_known
      from unnest(v_ctids, v_jobs, v_sequences) as d (at, job_id, sequence)
      left join locked l on l.job_id = d.job_id and l.sequence = d.sequence
  ), forgotten as (
    delete from leases l where l.ctid = any (array(select j.at from judged j where j.is_known))
  ), renewed as (
    insert into leases (queue_id, due_at, job_id, sequence)
    select distinct p_queue_id, j.lease_expires_at, j.job_id, j.sequence
      from judged j
     where j.lease_expires_at >= p_now
        on conflict on constraint leases_pkey do nothing
  )
  select array_agg(j.job_id), array_agg(j.sequence)
    into v_jobs, v_sequences
    from (select distinct i.job_id, i.sequence from judged i where i.lease_expires_at < p_now) j;
  if v_jobs is null then
    return v_seen;
  end if;

  with freed as (
    update job_outbox_events e
       set status             = case when e.unstarted_expiries >= 19 then 'dead_letter' else 'waiting' end,
           unstarted_expiries = e.unstarted_expiries + 1,
           worker_id          = null,
           lease_expires_at   = null,
           heartbeat_at       = null,
           claim_token        = null,
           last_error         = jsonb_build_object(
                                  'class', case when e.unstarted_expiries >= 19 then 'never_settled' else 'lease_expired' end,
                                  'occurred_at', _utc(p_now)),
           finished_at        = case when e.unstarted_expiries >= 19 then p_now end
      from unnest(v_jobs, v_sequences) as d (job_id, sequence)
     where e.job_id = any (v_jobs)
       and e.job_id = d.job_id
       and e.sequence = d.sequence
    returning e.job_id, e.sequence, e.status
  )
  select array_agg(f.job_id) filter (where f.status = 'waiting'), array_agg(f.sequence) filter (where f.status = 'waiting'),
         array_agg(f.job_id) filter (where f.status = 'dead_letter' and f.sequence = j.head_sequence)
    into v_back, v_numbers, v_dead
    from freed f
    join inbox_jobs j on j.job_id = any (v_jobs) and j.job_id = f.job_id;

  if v_back is not null then
    perform _file_events(v_back, v_numbers, array_fill(p_queue_id, array[cardinality(v_back)]), null, false);
  end if;
  if v_dead is not null then
    perform _advance_heads(v_dead);
  end if;
  return v_seen;
end;
$$;

comment on function euterpe._reclaim_events is 'Takes back events whose lease has lapsed, at most p_limit of them.';
revoke execute on function euterpe._reclaim_events from public;
