-- _refile_events: put events back into line and leases that lost their entry.
--
--   caller  euterpe-migrate retain, when it attaches a partition again
--   writes  ready, delayed, leases
--   answers how many entries were missing
--   see     _refile_jobs, which does the same for jobs
create or replace function euterpe._refile_events(
  p_from uuid,
  p_to   uuid
)
returns bigint
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ready bigint;
  v_owned bigint;
begin
  with lost as materialized (
    select e.queue_id, e.job_id, e.sequence, e.line_key, e.line_seq, e.run_at,
           e.requester_id || ' ' || e.callback_origin as endpoint
      from job_outbox_events e
     where e.job_id >= p_from and e.job_id < p_to and e.status = 'ready'
       and not exists (select from ready r where r.seq = e.line_seq)
       and not exists (select from delayed d where d.seq = e.line_seq)
  ), filed as (
    select _put_in_line(array_agg(l.queue_id), array_agg(l.job_id), array_agg(l.sequence), array_agg(l.line_key),
                        array_agg(l.line_seq), array_agg(l.run_at), array_agg(l.endpoint)), count(*) as entries
      from lost l
    having count(*) > 0
  )
  select coalesce(sum(f.entries), 0) into v_ready from filed f;

  insert into leases (queue_id, due_at, job_id, sequence)
  select e.queue_id, e.lease_expires_at, e.job_id, e.sequence
    from job_outbox_events e
   where e.job_id >= p_from and e.job_id < p_to and e.lease_expires_at is not null
      on conflict on constraint leases_pkey do nothing;
  get diagnostics v_owned = row_count;

  return v_ready + v_owned;
end;
$$;

comment on function euterpe._refile_events is
  'Puts events back into line and leases that lost their entry while their partition was detached.';
revoke execute on function euterpe._refile_events from public;
