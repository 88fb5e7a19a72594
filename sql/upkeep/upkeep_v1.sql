-- upkeep_v1: the slower things, bounded, by whoever comes by first.
--
--   caller  every service at start and every ten seconds; people in psql
--   writes  partitions, idempotency_keys (deletes what expired), job_secrets of jobs that have rested for a day, workers,
--           queue_samples, endpoint_circuits that nobody tried for a day; events that are in no line, through _mend_heads
--   raises  UT011  not read committed
--   answers one row per thing it did, or none when somebody else is at it
--   see     docs/line.md
--
-- Nothing here is needed for a claim to be right. Every part may be cut off and run again.
create or replace function euterpe.upkeep_v1()
returns table (
  did       text,
  row_count bigint
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_now   timestamptz := _now();
  v_count bigint;
begin
  perform _insist_read_committed();
  if not pg_try_advisory_xact_lock(6649204, 0) then
    return;
  end if;

  -- Somebody may hold the parent (a vacuum, a detach): then the next run makes them, and the rest is done all the same.
  begin
    v_count := _make_partitions(v_now);
    return query select 'made partitions', v_count;
  exception when lock_not_available then
    return query select 'could not make partitions now', 0::bigint;
  end;

  -- Small batches, oldest first.
  with expired as materialized (
    select k.ctid as at
      from idempotency_keys k
     where k.expires_at <= v_now
     order by k.expires_at
     limit 1000
       for update skip locked
  ), gone as (
    delete from idempotency_keys k
     where k.ctid = any (array(select e.at from expired e))
    returning 1
  )
  select count(*) into v_count from gone;
  return query select 'deleted expired idempotency keys', v_count;

  return query select 'forgot credentials of resting jobs', _expire_secrets(v_now);
  return query select 'mended stranded events', _mend_heads(v_now);

  update workers w
     set stopped_at = v_now
   where w.stopped_at is null and w.seen_at < v_now - interval '5 minutes';
  get diagnostics v_count = row_count;
  return query select 'marked absent workers', v_count;

  delete from workers w where w.stopped_at < v_now - interval '7 days';
  get diagnostics v_count = row_count;
  return query select 'forgot workers', v_count;

  -- In trouble, and not tried for a day: nothing waits for it any more, and it must not be an alarm for ever.
  delete from endpoint_circuits c
   where coalesce(c.probe_at, c.changed_at) < v_now - interval '1 day';
  get diagnostics v_count = row_count;
  return query select 'forgot endpoints', v_count;

  return query select 'sampled queues', _sample_queues(v_now);
end;
$$;

comment on function euterpe.upkeep_v1 is
  'Makes partitions, deletes expired idempotency keys and credentials, marks absent workers, samples the queues; bounded.';
revoke execute on function euterpe.upkeep_v1 from public;
