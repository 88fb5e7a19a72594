-- create_queue_v1: make a line, or leave the one that is there as it is.
--
--   caller  an operator; seed.sql
--   writes  queues, sequences in euterpe_line, operator_log
--   raises  23514  a setting is out of range (the constraint names it)
--   answers its id, and whether this call made it
--
-- Dynamic SQL: names are built from constants and the queue's number.
create or replace function euterpe.create_queue_v1(
  p_queue           text,
  p_holds           text    default 'jobs',
  p_lease_seconds   integer default 60,
  p_max_attempts    integer default 5,
  p_backoff_base_ms bigint  default 2000,
  p_backoff_factor  integer default 2,
  p_backoff_cap_ms  bigint  default 600000
)
returns table (
  queue_id smallint,
  created  boolean
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_queue_id     smallint;
  v_cursor       text;
  v_requester_id text;
begin
  -- A queue and a requester added at the same moment must see each other: each pair has a sequence.
  perform pg_advisory_xact_lock(6649204, -2);
  insert into queues as q (name, holds, lease_seconds, max_attempts, backoff_base_ms, backoff_factor,
                           backoff_cap_ms, created_at)
  values (p_queue, p_holds, p_lease_seconds, p_max_attempts, p_backoff_base_ms, p_backoff_factor,
          p_backoff_cap_ms, _now())
      on conflict on constraint queues_name_unique do nothing
  returning q.queue_id into v_queue_id;
  if v_queue_id is null then
    return query select q.queue_id, false from queues q where q.name = p_queue;
    return;
  end if;

  foreach v_cursor in array array['virtual', 'taken', 'floor', 'floor_seq', 'tick', 'hold', 'strays',
    'ready_safe', 'ready_mark', 'ready_mark_xid', 'delayed_safe', 'delayed_mark', 'delayed_mark_xid',
    'leases_safe', 'leases_mark', 'leases_mark_xid']
  loop
    execute format('create sequence euterpe_line.%I minvalue 0 start 0', format('q%s_%s', v_queue_id, v_cursor));
    perform setval(format('euterpe_line.q%s_%s', v_queue_id, v_cursor)::regclass, 0);
  end loop;
  for v_requester_id in select r.requester_id from requesters r order by r.requester_no loop
    perform _open_line(v_queue_id, v_requester_id);
  end loop;

  perform _log_act('create_queue', p_queue, null);
  return query select v_queue_id, true;
end;
$$;

comment on function euterpe.create_queue_v1 is
  'Makes a line with its cursors, or leaves the one of that name as it is.';
revoke execute on function euterpe.create_queue_v1 from public;
