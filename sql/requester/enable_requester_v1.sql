-- enable_requester_v1: take work from a disabled requester again.
--
--   caller  an operator
--   writes  requesters.disabled_at, operator_log
--   raises  UT004  no such requester
create or replace function euterpe.enable_requester_v1(
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
     set disabled_at = null
   where r.requester_id = p_requester_id;
  if not found then
    raise exception using errcode = 'UT004', message = format('there is no requester %s', p_requester_id);
  end if;
  perform _log_act('enable_requester', p_requester_id, p_why);
end;
$$;

comment on function euterpe.enable_requester_v1 is 'Takes work from a disabled requester again.';
revoke execute on function euterpe.enable_requester_v1 from public;
