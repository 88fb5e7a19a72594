-- _explain_queued: what a queued job waits for.
--
--   caller  explain_job_v1
--   cost    up to 10,000 entries of the line before it
create or replace function euterpe._explain_queued(
  p_now    timestamptz,
  p_job    euterpe.inbox_jobs,
  p_queue  euterpe.queues,
  p_reason text
)
returns table (
  situation text,
  says      text
)
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_key    bigint;
  v_before bigint;
  v_alone  text := case when exists (select from workers w
                                      where w.kind in ('transcode', 'other') and w.stopped_at is null
                                        and w.seen_at > p_now - interval '2 minutes')
                        then '' else '; and no worker is alive' end;
  v_why    text := case p_reason
                     when 'credentials' then 'its storage credentials must be renewed'
                     when 'lease_expired' then 'its last worker was not heard of in time'
                     when 'worker_shutdown' then 'its last worker was shut down'
                     when 'not_started' then 'its last worker handed it back unstarted'
                     else coalesce('after ' || p_reason, 'new') end;
begin
  if exists (select from delayed d where d.queue_id = p_job.queue_id and d.run_at = p_job.run_at and d.seq = p_job.line_seq) then
    return query
    select case when p_reason = 'credentials' then 'waiting_for_credentials'
                when p_job.run_at <= p_now then 'due' else 'delayed' end,
           format('%s (%s), until %s UTC, attempt %s of %s',
                  case when p_job.run_at <= p_now
                       then 'due since ' || _ago(p_now - p_job.run_at) || ', the next tick lets it into the line'
                       else 'delayed for ' || _ago(p_job.run_at - p_now) || ' more' end,
                  v_why, to_char(p_job.run_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
                  p_job.attempt_count + 1, p_job.max_attempts)
           || case when p_queue.paused_at is not null then format('; and queue %s is paused', p_queue.name) else '' end;
    return;
  end if;

  -- Its place is at its first key, or at virtual time when that has passed: the entry itself says where.
  select r.key into v_key
    from ready r
   where r.queue_id = p_job.queue_id and r.shard = 0 and r.seq = p_job.line_seq and r.key >= p_job.line_key
   order by r.key
   limit 1;
  if v_key is null then
    return query select 'lost', 'queued, and in no line: tell the developers; orphan_check_v1 says more'::text;
    return;
  end if;
  select count(*) into v_before
    from (select 1
            from ready r
           where r.queue_id = p_job.queue_id and r.shard = 0
             and (r.key, r.seq) < (v_key, p_job.line_seq)
           limit 10001) b;
  return query
  select case when p_queue.paused_at is not null then 'paused'
              when p_reason = 'credentials' then 'waiting_for_credentials'
              else 'in_line' end,
         case when p_queue.paused_at is not null
              then format('queue %s is paused since %s UTC%s; resume_queue_v1(''%s'') lets it go; ', p_queue.name,
                          to_char(p_queue.paused_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
                          (select format(' by %s%s', a.who, coalesce(': ' || a.why, ''))
                             from operator_log a
                            where a.act = 'pause_queue' and a.target = p_queue.name
                            order by a.log_id desc
                            limit 1), p_queue.name)
              else '' end
         || format('%s in line %s for %s (%s), attempt %s of %s',
                   case when v_before = 0 then 'next'
                        when v_before > 10000 then 'behind more than 10000'
                        else 'behind ' || v_before end,
                   p_queue.name, _ago(p_now - greatest(p_job.updated_at, p_job.run_at)), v_why,
                   p_job.attempt_count + 1, p_job.max_attempts)
         || v_alone;
end;
$$;

comment on function euterpe._explain_queued is 'What a queued job waits for: its time, its turn, or the queue.';
revoke execute on function euterpe._explain_queued from public;
