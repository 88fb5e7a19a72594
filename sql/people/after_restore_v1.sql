-- after_restore_v1: what to run once after a restore or a failover that may have lost commits, before workers start.
--
--   caller  an operator
--   writes  inbox_jobs, job_outbox_events (nobody owns anything any more), ready, leases; the cursors of all lines;
--           operator_log
--   emits   queued, reason restored, for every job that was in somebody's hands; failed and dead_letter when its budget
--           was spent
--   raises  UT011  not read committed
--   answers one row per thing it did or found
--   see     docs/operations.md, design §5.1
--
-- A worker of the time before may hold a claim that this database has forgotten, or has handed out again: every token
-- goes, so nobody of that time is heard. Floors and safe points start over, because rows may have come back below them.
-- Deliveries made in the time that was lost are not known here, so they are made again, with the same event_id.
-- Reads all jobs and events once, so it may need more time than an operator's statements have: set statement_timeout = 0
-- before. Whether everything agrees is a question of its own, for orphan_check_v1.
create or replace function euterpe.after_restore_v1(
  p_why text default null
)
returns table (
  did       text,
  row_count bigint,
  says      text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_now     timestamptz := _now();
  v_queue   record;
  v_cursor  text;
  v_jobs    uuid[];
  v_numbers integer[];
  v_queues  smallint[];
  v_count   bigint;
  v_highest bigint;
begin
  perform _insist_read_committed();

  -- Chosen, locked, and looked at again: somebody may still be cancelling.
  v_jobs := array(select j.job_id from inbox_jobs j where j.worker_id is not null order by j.job_id);
  perform _lock_jobs(v_jobs);
  v_jobs := array(select j.job_id from inbox_jobs j where j.job_id = any (v_jobs) and j.worker_id is not null);
  if cardinality(v_jobs) > 0 then
    perform _end_or_requeue(v_now, array(
      select (j.job_id, case when j.attempt_count >= j.max_attempts then 'dead_letter' else 'queued' end,
              null, null, null, null, null, 'restored',
              case when j.attempt_count >= j.max_attempts then
                   jsonb_build_object('code', 'lease_expired', 'class', 'control', 'retryable', false,
                     'message', 'in somebody''s hands when the database was restored, on its last attempt',
                     'phase', j.status, 'attempt', j.attempt_count, 'occurred_at', _utc(v_now)) end,
              null, null, null, null, null)::_step
        from inbox_jobs j
       where j.job_id = any (v_jobs)));
  end if;
  return query select 'took jobs from their workers', cardinality(v_jobs)::bigint, 'their tokens are void'::text;

  select array_agg(e.job_id), array_agg(e.sequence) into v_jobs, v_numbers
    from job_outbox_events e where e.worker_id is not null;
  if v_jobs is not null then
    perform _lock_jobs(v_jobs);
    perform _lock_events(v_jobs, v_numbers);
  end if;
  with freed as (
    update job_outbox_events e
       set status = 'waiting', worker_id = null, lease_expires_at = null, heartbeat_at = null, claim_token = null
      from unnest(v_jobs, v_numbers) as s (job_id, sequence)
     where e.job_id = any (v_jobs)
       and e.job_id = s.job_id
       and e.sequence = s.sequence
       and e.worker_id is not null
    returning e.job_id, e.sequence, e.queue_id
  )
  select array_agg(f.job_id), array_agg(f.sequence), array_agg(f.queue_id) into v_jobs, v_numbers, v_queues from freed f;
  if v_jobs is not null then
    perform _file_events(v_jobs, v_numbers, v_queues, null, false);
  end if;
  return query select 'took events from their workers', coalesce(cardinality(v_jobs), 0)::bigint,
                      'may have been delivered already: receivers see the same event_id again'::text;

  select count(*) into v_count
    from job_outbox_events e where e.status = 'ready' and e.queue_id is not null;
  return query select 'found events in line', v_count,
                      'what was delivered in the time that was lost is delivered again'::text;

  -- Entries are told apart by their number: it must be above every number that is in use.
  select greatest(max(r.seq), (select max(d.seq) from delayed d),
                  (select max(j.line_seq) from inbox_jobs j), (select max(e.line_seq) from job_outbox_events e))
    into v_highest
    from ready r;
  v_count := (v_highest >= pg_sequence_last_value('euterpe_line.seq'))::integer;
  if v_count > 0 then
    perform setval('euterpe_line.seq', v_highest + 1000);
  end if;
  return query select 'moved the counter of entries', coalesce(v_count, 0),
                      coalesce(format('highest in use: %s', v_highest), 'no entries');

  v_count := 0;
  for v_queue in select q.queue_id from queues q order by q.queue_id loop
    foreach v_cursor in array array['floor', 'floor_seq', 'tick', 'hold', 'ready_safe', 'ready_mark', 'ready_mark_xid',
      'delayed_safe', 'delayed_mark', 'delayed_mark_xid', 'leases_safe', 'leases_mark', 'leases_mark_xid', 'strays']
    loop
      perform setval(format('euterpe_line.q%s_%s', v_queue.queue_id, v_cursor)::regclass, 0);
    end loop;
    v_count := v_count + 1;
  end loop;
  perform setval('euterpe_line.mended', 0);
  return query select 'reset the floors of lines', v_count, 'the next ticks find them again'::text;
  perform _log_act('after_restore', 'all', p_why);
end;
$$;

comment on function euterpe.after_restore_v1 is
  'Run once after a restore or a failover that may have lost commits, before workers start: voids every claim, resets the lines.';
revoke execute on function euterpe.after_restore_v1 from public;
