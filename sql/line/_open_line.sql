-- _open_line: give a requester its place counter in a line.
--
--   caller  create_queue_v1, add_requester_v1
--   writes  sequence euterpe_line.q<queue_id>_r<requester_no>
--   see     docs/line.md
--
-- A requester of weight w stands 1000/w further back with each job. Dynamic SQL: names and the increment are
-- built from numbers.
create or replace function euterpe._open_line(
  p_queue_id     smallint,
  p_requester_id text
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_requester requesters%rowtype;
begin
  select r.* into strict v_requester from requesters r where r.requester_id = p_requester_id;
  execute format('create sequence euterpe_line.%I increment by %s minvalue 0 start 0',
                 format('q%s_r%s', p_queue_id, v_requester.requester_no), 1000 / v_requester.weight);
end;
$$;

comment on function euterpe._open_line is 'Makes the sequence that counts a requester''s places in a line.';
revoke execute on function euterpe._open_line from public;
