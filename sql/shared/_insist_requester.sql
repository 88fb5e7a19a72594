-- _insist_requester: null means any requester, and that only operators may mean.
--
--   caller  _take_job, redeliver_events_v1
--   raises  UT004  a login of the HTTP tier that names no requester
--
-- The HTTP tier names its caller, always; should it ever forget to, it must not become an operator.
create or replace function euterpe._insist_requester(
  p_requester_id text
)
returns void
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
begin
  if p_requester_id is null
     and pg_has_role(session_user, 'euterpe_api', 'member') and not pg_has_role(session_user, 'euterpe_operator', 'member') then
    raise exception using errcode = 'UT004', message = 'no requester was named, and only operators speak for any';
  end if;
end;
$$;

comment on function euterpe._insist_requester is 'Null means any requester, and that only operators may mean.';
revoke execute on function euterpe._insist_requester from public;
