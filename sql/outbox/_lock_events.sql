-- _lock_events: take the row locks of a batch of events, always in order.
--
--   caller  every function in which a worker or a person speaks of events; those that change what may be delivered
--           next hold the locks of the jobs before
--   locks   job_outbox_events, for no key update
--
-- Lock order everywhere: jobs by id, then events by (id, sequence), then circuits by name.
create or replace function euterpe._lock_events(
  p_job_ids   uuid[],
  p_sequences integer[]
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  perform 1
     from job_outbox_events e
    where e.job_id = any (p_job_ids)
      and (e.job_id, e.sequence) in (select s.job_id, s.sequence
                                       from unnest(p_job_ids, p_sequences) as s (job_id, sequence))
    order by e.job_id, e.sequence
      for no key update;
end;
$$;

comment on function euterpe._lock_events is 'Locks the rows of a batch of events in order.';
revoke execute on function euterpe._lock_events from public;
