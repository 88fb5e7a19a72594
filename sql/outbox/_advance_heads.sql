-- _advance_heads: the next event of each of these jobs, if one waits, may be delivered.
--
--   caller  settle_events_v1, _reclaim_events, _mend_heads; they hold the job's row lock, and in an earlier statement
--           have settled the event that was its head
--   writes  inbox_jobs.head_sequence; the next event, through _file_events
--   answers the jobs whose next event is in the line now
--   see     docs/outbox.md
--
-- Whoever writes an event holds the job's lock too, and sees by head_sequence whether one is on its way. So either
-- that writer came before us, and this statement, whose snapshot is younger than our lock, sees its event; or it comes
-- after us, and finds head_sequence null.
create or replace function euterpe._advance_heads(
  p_job_ids uuid[]
)
returns uuid[]
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_jobs      uuid[];
  v_sequences integer[];
begin
  with next as materialized (
    select j.job_id, min(e.sequence) as sequence
      from inbox_jobs j
      left join job_outbox_events e
        on e.job_id = any (p_job_ids) and e.job_id = j.job_id and e.sequence >= coalesce(j.head_sequence, 1)
       and e.status = 'waiting'
     where j.job_id = any (p_job_ids)
     group by j.job_id
  ), moved as (
    update inbox_jobs j
       set head_sequence = n.sequence
      from next n
     where j.job_id = any (p_job_ids)
       and j.job_id = n.job_id
    returning j.job_id, j.head_sequence
  )
  select array_agg(m.job_id), array_agg(m.head_sequence)
    into v_jobs, v_sequences
    from moved m
   where m.head_sequence is not null;

  if v_jobs is not null then
    perform _file_events(v_jobs, v_sequences, null, null, true);
  end if;
  return v_jobs;
end;
$$;

comment on function euterpe._advance_heads is 'Lets the next waiting event of each job into the line.';
revoke execute on function euterpe._advance_heads from public;
