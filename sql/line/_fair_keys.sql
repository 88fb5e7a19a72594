-- _fair_keys: places in the line for new items of one requester, one per priority given.
--
--   caller  _enqueue_jobs, _file_events
--   writes  euterpe_line.q<queue>_r<requester> (a sequence: a long transaction blocks no other producer)
--   see     docs/line.md
--
-- Start-time fair queueing: each item of a requester stands 1000/weight after its last one, but never
-- before virtual time V, which is about the key being served now. So a flood queues up behind itself, a
-- newcomer starts at the head, and one point of priority moves an item by one job of weight 1.
create or replace function euterpe._fair_keys(
  p_queue_id     smallint,
  p_requester_no integer,
  p_priorities   integer[]
)
returns bigint[]
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_own      regclass := ('euterpe_line.q' || p_queue_id || '_r' || p_requester_no)::regclass;
  v_virtual  bigint   := _virtual_time(p_queue_id);
  v_tag      bigint;
  v_priority integer;
  v_keys     bigint[] := '{}'::bigint[];
begin
  foreach v_priority in array p_priorities loop
    v_tag := nextval(v_own);
    if v_tag < v_virtual then
      perform setval(v_own, v_virtual);
      v_tag := v_virtual;
    end if;
    v_keys := v_keys || greatest(v_virtual, v_tag + 1000 * (100 - v_priority));
  end loop;

  return v_keys;
end;
$$;

comment on function euterpe._fair_keys is 'Fair places in the line for new items of one requester.';
revoke execute on function euterpe._fair_keys from public;
