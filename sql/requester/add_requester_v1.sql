-- add_requester_v1: let somebody ask for work.
--
--   caller  an operator
--   writes  requesters, its sequences in euterpe_line, operator_log
--   raises  22023  requester_id is not a slug
--           23505  it is there already; 23514 a setting is out of range (the constraint names it)
create or replace function euterpe.add_requester_v1(
  p_requester_id        text,
  p_display_name        text    default null,
  p_weight              integer default 1,
  p_max_priority        integer default 1000,
  p_max_open_jobs       integer default 100000,
  p_requests_per_second integer default 20,
  p_request_burst       integer default 60
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
begin
  if p_requester_id is null or p_requester_id !~ '^[a-z0-9_-]{1,64}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('add_requester_v1: p_requester_id=%s must be 1 to 64 of a-z 0-9 _ -', p_requester_id);
  end if;

  -- A queue and a requester added at the same moment must see each other: each pair has a sequence.
  perform pg_advisory_xact_lock(6649204, -2);
  insert into requesters (requester_id, display_name, weight, max_priority, max_open_jobs,
                          requests_per_second, request_burst, created_at)
  values (p_requester_id, p_display_name, p_weight, p_max_priority, p_max_open_jobs,
          p_requests_per_second, p_request_burst, _now());
  perform _open_line(q.queue_id, p_requester_id) from queues q order by q.queue_id;
  perform _log_act('add_requester', p_requester_id, null);
end;
$$;

comment on function euterpe.add_requester_v1 is 'Lets somebody ask for work, with a weight and limits.';
revoke execute on function euterpe.add_requester_v1 from public;
