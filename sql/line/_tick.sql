-- _tick: sweep, promote and reclaim one line, bounded.
--
--   caller  _tick_if_due, which holds the line's try-lock
--   writes  delayed, ready, leases, the line's cursors; jobs and events through _reclaim_jobs and _reclaim_events
--   see     docs/line.md; design §4.3, §4.4
--
-- At most four thousand entries of delayed and of leases move in one tick: every claim files a lease that must be
-- looked at once, so this bounds how many claims a second a line can keep up with.
-- After a gap longer than a third of a lease the database, or everybody, was away: reclaim then waits one lease, so
-- that living workers can speak first. Only once: where ticks are always sparse, the second gap does not wait again.
-- Once a minute all safe points are ignored and the whole line is looked at (see _safe_point for what is found).
create or replace function euterpe._tick(
  p_now           timestamptz,
  p_queue_id      smallint,
  p_holds         text,
  p_lease_seconds integer,
  p_age_ms        bigint,
  p_fresh_xid     bigint
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  v_prefix    text    := 'euterpe_line.q' || p_queue_id || '_';
  v_now_ms    bigint  := extract(epoch from p_now) * 1000;
  v_whole     boolean := v_now_ms / 60000 <> (v_now_ms - p_age_ms) / 60000;
  v_settled   bigint  := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  v_hold      bigint;
  v_since     timestamptz;
  v_lowest    bigint;
begin
  -- delayed: what is due goes to ready. The lowest entry is read before any is moved, because the safe point stays
  -- where it is put even if this transaction is rolled back.
  v_since := timestamptz 'epoch' + interval '1 millisecond'
             * case when v_whole then 0 else pg_sequence_last_value((v_prefix || 'delayed_safe')::regclass) end;
  select floor(extract(epoch from d.run_at) * 1000) into v_lowest
    from delayed d
   where d.queue_id = p_queue_id and d.run_at >= v_since
   order by d.run_at limit 1;
  perform _safe_point(p_queue_id, 'delayed', p_fresh_xid, v_settled, least(v_lowest, v_now_ms));
  for v_round in 1 .. 4 loop
    exit when _promote(p_now, p_queue_id, v_since, 1000) < 1000;
  end loop;

  -- leases: what lapsed goes back to its line.
  v_hold := pg_sequence_last_value((v_prefix || 'hold')::regclass);
  if v_hold > v_now_ms + p_lease_seconds * 1000 then
    v_hold := 0; -- set by a clock that was ahead
  end if;
  if p_age_ms > p_lease_seconds * 1000 / 3 and p_age_ms < v_now_ms and v_hold <= v_now_ms - p_age_ms then
    v_hold := v_now_ms + p_lease_seconds * 1000;
    perform setval((v_prefix || 'hold')::regclass, v_hold);
  end if;
  v_since := timestamptz 'epoch' + interval '1 millisecond'
             * case when v_whole then 0 else pg_sequence_last_value((v_prefix || 'leases_safe')::regclass) end;
  select floor(extract(epoch from l.due_at) * 1000) into v_lowest
    from leases l
   where l.queue_id = p_queue_id and l.due_at >= v_since
   order by l.due_at limit 1;
  perform _safe_point(p_queue_id, 'leases', p_fresh_xid, v_settled, least(v_lowest, v_now_ms));
  if v_hold <= v_now_ms then
    for v_round in 1 .. 4 loop
      exit when case when p_holds = 'jobs' then _reclaim_jobs(p_now, p_queue_id, v_since, 1000)
                     else _reclaim_events(p_now, p_queue_id, v_since, 1000) end < 1000;
    end loop;
  end if;

  perform _sweep(p_queue_id, p_fresh_xid, v_settled, v_whole);
end;
$$;

comment on function euterpe._tick is 'Sweeps, promotes and reclaims one line, bounded.';
revoke execute on function euterpe._tick from public;
