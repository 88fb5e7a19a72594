-- worker_stopped_v1: a process says goodbye.
--
--   caller  every service at the end of its drain
--   writes  workers.stopped_at
create or replace function euterpe.worker_stopped_v1(
  p_worker_id text
)
returns void
language sql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
  update workers w
     set stopped_at = _now()
   where w.worker_id = p_worker_id
$$;

comment on function euterpe.worker_stopped_v1 is 'A process says goodbye.';
revoke execute on function euterpe.worker_stopped_v1 from public;
