-- A clock that tests can wind: the real one plus an offset that no transaction hides.
create sequence euterpe_line.test_clock_ms minvalue 0 start 0;
select setval('euterpe_line.test_clock_ms', 0);
alter sequence euterpe_line.test_clock_ms owner to euterpe_owner;

create or replace function euterpe._now()
returns timestamptz
language sql
volatile
security definer -- readers may not touch the sequence; production's clock reads none
set search_path = pg_catalog, pg_temp
as $$
  select clock_timestamp() + c.last_value * interval '1 millisecond' from euterpe_line.test_clock_ms c
$$;
