-- disable_requester_v1: stop taking work from somebody; what was accepted goes on.
--
--   caller  an operator
--   writes  requesters.disabled_at, operator_log
--   raises  UT004  no such requester
create or replace function euterpe.disable_requester_v1(
  p_requester_id text,
  p_why          text default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
begin
  update requesters r
     set disabled_at = coalesce(r.disabled_at, _now())
   where r.requester_id = p_requester_id;
  if not found then
    raise exception using errcode = 'UT004', message = format('there is no requester %s', p_requester_id);
  end if;
  perform _log_act('disable_requester', p_requester_id, p_why);
end;
$$;

comment on function euterpe.disable_requester_v1 is 'Stops taking work from a requester; its accepted jobs go on.';
revoke execute on function euterpe.disable_requester_v1 from public;
