-- _tick_if_due: the heartbeat of a line, taken by whoever comes by first.
--
--   caller  claim_jobs_v1, claim_events_v1, tick_v1
--   writes  see _tick
--
-- At most once a second per queue, by one session at a time; everybody else passes. So no particular
-- process has to live for leases to be reclaimed and retries to come due.
create or replace function euterpe._tick_if_due(
  p_now           timestamptz,
  p_queue_id      smallint,
  p_holds         text,
  p_lease_seconds integer
)
returns boolean
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_tick      regclass := ('euterpe_line.q' || p_queue_id || '_tick')::regclass;
  v_now_ms    bigint   := extract(epoch from p_now) * 1000;
  v_age_ms    bigint   := v_now_ms - pg_sequence_last_value(v_tick);
  v_fresh_xid bigint;
begin
  -- A tick from the future (a clock that was set back, a failover) counts as stale, too.
  if v_age_ms between -999 and 999 or not pg_try_advisory_xact_lock(6649204, p_queue_id) then
    return false;
  end if;
  v_age_ms := v_now_ms - pg_sequence_last_value(v_tick);
  if v_age_ms between -999 and 999 then
    return false;
  end if;

  -- An xid taken now, under the lock, is higher than that of everybody who read V before the last tick moved it
  -- (_safe_point). A transaction that had one before cannot say so.
  if pg_current_xact_id_if_assigned() is null then
    v_fresh_xid := pg_current_xact_id()::text::bigint;
  end if;
  perform setval(v_tick, v_now_ms);
  perform _tick(p_now, p_queue_id, p_holds, p_lease_seconds, v_age_ms, v_fresh_xid);
  return true;
end;
$$;

comment on function euterpe._tick_if_due is
  'Runs the tick of a line if the last one is a second old and nobody else is at it.';
revoke execute on function euterpe._tick_if_due from public;
