-- explain_job_v1: why a job is not running, or what it is doing, in one row.
--
--   caller  anybody in psql: select * from explain_job_v1('…')
--   writes  nothing, locks nothing
--   answers one row, always: situation (one word to filter by), says (a sentence), callbacks (how its webhooks stand)
--   cost    one job, its newest event, and up to 10,000 entries of the line before it
--   see     docs/operations.md
create or replace function euterpe.explain_job_v1(
  p_job_id uuid
)
returns table (
  situation text,
  says      text,
  callbacks text
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_now   timestamptz := _now();
  v_job   inbox_jobs%rowtype;
  v_queue queues%rowtype;
  v_last  job_outbox_events%rowtype;
  v_calls text;
begin
  select j.* into v_job from inbox_jobs j where j.job_id = p_job_id;
  if not found then
    return query
    select case when p.is_pruned then 'pruned' else 'unknown' end,
           case when p.is_pruned then 'its week is over and was dropped (EUTERPE_RETENTION_DAYS)'
                else 'there is no job of that id in this database' end,
           null::text
      from (select substr(p_job_id::text, 15, 1) = '7' and _id_time(p_job_id) < v_now
                   and not _has_partition(p_job_id) as is_pruned) p;
    return;
  end if;
  select q.* into strict v_queue from queues q where q.queue_id = v_job.queue_id;
  select e.* into strict v_last
    from job_outbox_events e where e.job_id = p_job_id and e.sequence = v_job.last_sequence;
  v_calls := _explain_callbacks(v_now, v_job);

  if v_job.status = 'queued' then
    return query select x.situation, x.says, v_calls from _explain_queued(v_now, v_job, v_queue, v_last.reason) x;
  elsif v_job.worker_id is not null then
    return query
    select case when v_job.lease_expires_at < v_now then 'lapsed' else 'running' end,
           format('%s%s, attempt %s of %s, by %s, heard of %s ago, %s', v_job.status,
                  coalesce(' ' || (v_job.progress ->> 'percent') || '%', ''),
                  v_job.attempt_count + (v_job.status = 'claimed')::integer, v_job.max_attempts, v_job.worker_id,
                  _ago(v_now - v_job.heartbeat_at),
                  case when v_job.lease_expires_at < v_now
                       then 'its lease lapsed ' || _ago(v_now - v_job.lease_expires_at) || ' ago: the next tick takes it back'
                       else 'leased for ' || _ago(v_job.lease_expires_at - v_now) || ' more' end)
           || case when v_job.credential_refresh_streak > 0
                   then format('; asked for new credentials %s times in a row', v_job.credential_refresh_streak) else '' end,
           v_calls;
  else
    return query
    select case when v_job.redriven_as is not null then 'redriven' else v_job.status end,
           case
             when v_job.redriven_as is not null then format('given up %s ago, goes on as %s',
                                                            _ago(v_now - v_job.finished_at), v_job.redriven_as)
             when v_job.status = 'succeeded' then format('succeeded %s ago, on attempt %s',
                                                         _ago(v_now - v_job.finished_at), v_job.attempt_count)
             else format('%s %s ago: %s%s; %s',
                         case when v_job.status = 'failed' then 'failed' else 'given up' end,
                         _ago(v_now - v_job.finished_at), v_job.last_error ->> 'code',
                         coalesce(' (' || nullif(v_job.last_error ->> 'message', '') || ')', ''),
                         case when v_job.status = 'dead_letter' or v_job.attempt_count >= v_job.max_attempts
                              then 'redrive_job_v1 makes a new one of it'
                              else 'retry_job_v1 tries it again' end)
           end,
           v_calls;
  end if;
end;
$$;

comment on function euterpe.explain_job_v1 is
  'Why a job is not running, or what it is doing, and how its webhooks stand: one row, always.';
revoke execute on function euterpe.explain_job_v1 from public;
