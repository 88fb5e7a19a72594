-- pause_queue_v1: a line hands out nothing from now on; what is claimed goes on, what comes in waits.
--
--   caller  an operator
--   writes  queues.paused_at, operator_log
--   raises  UT006  no such queue
create or replace function euterpe.pause_queue_v1(
  p_queue text,
  p_why   text default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
begin
  update queues q set paused_at = coalesce(q.paused_at, _now()) where q.name = p_queue;
  if not found then
    raise exception using errcode = 'UT006', message = format('there is no queue %s', p_queue);
  end if;
  perform _log_act('pause_queue', p_queue, p_why);
end;
$$;

comment on function euterpe.pause_queue_v1 is
  'A line hands out nothing from now on; what is claimed goes on, what comes in waits.';
revoke execute on function euterpe.pause_queue_v1 from public;
