-- _sample_queues: write down depth and age of each line, every ten seconds.
--
--   caller  upkeep_v1
--   writes  queue_samples; forgets what is older than a day
--   answers how many lines were sampled
--
-- The age is that of the wait, not of the job: one that was scheduled for now has waited for nothing.
-- Counted up to 100,000 per line, from the safe points up, so that a sample costs the same however much
-- is dead behind the line.
create or replace function euterpe._sample_queues(
  p_now timestamptz
)
returns bigint
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_count bigint;
begin
  -- Of a clock that was ahead: else there would be no sample until that time has come.
  delete from queue_samples s where s.sampled_at > p_now + interval '1 minute';
  if exists (select from queue_samples s where s.sampled_at > p_now - interval '10 seconds') then
    return 0;
  end if;

  insert into queue_samples (queue_id, sampled_at, ready_count, delayed_count, leased_count, oldest_ready_age_ms)
  select q.queue_id, p_now, r.count, d.count, l.count, extract(epoch from p_now - h.since) * 1000
    from queues q
   cross join lateral (
         select pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_floor')::regclass) as key,
                timestamptz 'epoch' + interval '1 millisecond'
                  * pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_delayed_safe')::regclass) as delayed_at,
                timestamptz 'epoch' + interval '1 millisecond'
                  * pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_leases_safe')::regclass) as leases_at) f
   cross join lateral (
         select count(*) from (select from ready e where e.queue_id = q.queue_id and e.shard = 0 and e.key >= f.key
                                limit 100000) e) r
   cross join lateral (
         select count(*) from (select from delayed e where e.queue_id = q.queue_id and e.run_at >= f.delayed_at
                                limit 100000) e) d
   cross join lateral (
         select count(*) from (select from leases e where e.queue_id = q.queue_id and e.due_at >= f.leases_at
                                limit 100000) e) l
    left join lateral (
         select case when e.sequence = 0
                     then (select greatest(j.updated_at, j.run_at) from inbox_jobs j where j.job_id = e.job_id)
                     else (select greatest(o.created_at, o.run_at) from job_outbox_events o
                            where o.job_id = e.job_id and o.sequence = e.sequence) end as since
           from ready e
          where e.queue_id = q.queue_id and e.shard = 0 and e.key >= f.key
          order by e.key, e.seq limit 1) h on true;
  get diagnostics v_count = row_count;

  delete from queue_samples s
   where s.sampled_at < p_now - interval '1 day';

  return v_count;
end;
$$;

comment on function euterpe._sample_queues is 'Writes down depth and age of each line, every ten seconds.';
revoke execute on function euterpe._sample_queues from public;
