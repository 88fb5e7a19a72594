-- tick_v1: give a line its tick if it is due, without claiming anything.
--
--   caller  every worker loop while it is busy; people in psql
--   writes  see _tick
--   raises  UT006  no such queue
--           UT011  not read committed
--   answers whether this call did it
create or replace function euterpe.tick_v1(
  p_queue text
)
returns boolean
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_queue queues%rowtype;
begin
  perform _insist_read_committed();
  select q.* into v_queue from queues q where q.name = p_queue;
  if not found then
    raise exception using errcode = 'UT006', message = format('there is no queue %s', p_queue);
  end if;
  return _tick_if_due(_now(), v_queue.queue_id, v_queue.holds, v_queue.lease_seconds);
end;
$$;

comment on function euterpe.tick_v1 is
  'Sweeps, promotes and reclaims a line, at most once a second; says whether this call did it.';
revoke execute on function euterpe.tick_v1 from public;
