-- _reclaim_jobs: take back jobs whose lease has lapsed.
--
--   caller  _tick
--   writes  leases (deletes, re-files), inbox_jobs through _end_or_requeue, ready
--   emits   queued with reason lease_expired; when the budget is spent, failed and dead_letter
--   see     contract §4; design §5.4
--
-- leases says when to look, the job says what is true: it may have ended (the entry is forgotten), been
-- renewed (filed again at its new time), or be held by somebody at this moment (left for the next tick).
create or replace function euterpe._reclaim_jobs(
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
  v_ctids   tid[];
  v_jobs    uuid[];
  v_seen    uuid[];
  v_renewed uuid[];
  v_lapsed  uuid[];
begin
  with due as materialized (
    select l.ctid as at, l.job_id
      from leases l
     where l.queue_id = p_queue_id
       and l.due_at >= p_since
       and l.due_at < p_now
     order by l.due_at
     limit p_limit
       for update skip locked
  )
  select array_agg(d.at), array_agg(d.job_id) into v_ctids, v_jobs from due d;
  if v_jobs is null then
    return 0;
  end if;

  with locked as materialized (
    select j.job_id, j.lease_expires_at
      from inbox_jobs j
     where j.job_id = any (v_jobs)
       for no key update skip locked
  )
  select array_agg(l.job_id),
         array_agg(l.job_id) filter (where l.lease_expires_at >= p_now),
         array_agg(l.job_id) filter (where l.lease_expires_at < p_now)
    into v_seen, v_renewed, v_lapsed
    from locked l;

  delete from leases l
   where l.ctid = any (array(
           select e.at
             from unnest(v_ctids, v_jobs) as e (at, job_id)
            where e.job_id = any (v_seen)
               or not exists (select from inbox_jobs j where j.job_id = any (v_jobs) and j.job_id = e.job_id)));

  insert into leases (queue_id, due_at, job_id, sequence)
  select p_queue_id, j.lease_expires_at, j.job_id, 0
    from inbox_jobs j
   where j.job_id = any (v_renewed)
      on conflict on constraint leases_pkey do nothing;

  if v_lapsed is not null then
    perform _end_or_requeue(p_now, array(
      select (j.job_id, d.to_status, null, null, null, null, null,
              'lease_expired',
              case when d.to_status = 'dead_letter' then
                   jsonb_build_object(
                     'code', d.code, 'class', 'control', 'message', d.message, 'retryable', false,
                     'phase', j.status, 'attempt', j.attempt_count, 'occurred_at', _utc(p_now)) end,
              null, null, null, null, null)::_step
        from inbox_jobs j
       cross join lateral (
             select case when j.attempt_count >= j.max_attempts or (j.status = 'claimed' and j.unstarted_expiries >= 19)
                         then 'dead_letter' else 'queued' end as to_status,
                    case when j.status = 'claimed' then 'never_started' else 'lease_expired' end as code,
                    case when j.status = 'claimed' then 'claimed twenty times, never started'
                         else 'its worker was not heard of in time, on its last attempt' end as message) d
       where j.job_id = any (v_lapsed)));
  end if;

  return cardinality(v_jobs);
end;
$$;

comment on function euterpe._reclaim_jobs is 'Takes back jobs whose lease has lapsed, at most p_limit of them.';
revoke execute on function euterpe._reclaim_jobs from public;
