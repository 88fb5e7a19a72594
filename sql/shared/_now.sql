-- _now: the only clock the queue reads.
--
--   caller  every function that needs the time, once, into v_now
--   see     design: time comes from the database, never from a worker
--
-- Why a function: tests replace it with one they can wind forward, so that a lease expires in a test
-- without anybody sleeping. Two calls are two different instants.
create or replace function euterpe._now()
returns timestamptz
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return clock_timestamp();
end;
$$;

comment on function euterpe._now is 'The only clock the queue reads; tests wind it.';
revoke execute on function euterpe._now from public;
