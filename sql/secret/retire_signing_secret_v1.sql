-- retire_signing_secret_v1: nothing is signed with this secret any more.
--
--   caller  the command line: a secret leaked, or its overlap is no longer needed
--   writes  signing_secrets, operator_log
--   raises  UT002  it is the active one: activate another first
--           UT004  no such secret
--   see     contract §8; design §5.11
create or replace function euterpe.retire_signing_secret_v1(
  p_requester_id text,
  p_version      integer,
  p_why          text default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now    timestamptz;
  v_active integer;
begin
  perform from requesters r where r.requester_id = p_requester_id for no key update;
  v_now := _now();
  if not exists (select from signing_secrets s where s.requester_id = p_requester_id and s.version = p_version) then
    raise exception using
      errcode = 'UT004',
      message = format('%s has no signing secret of version %s', p_requester_id, p_version);
  end if;
  select s.version into v_active
    from signing_secrets s
   where s.requester_id = p_requester_id
     and s.activated_at is not null
     and (s.retired_at is null or s.retired_at > v_now)
   order by s.activated_at desc, s.version desc
   limit 1;
  if p_version = v_active then
    raise exception using
      errcode = 'UT002',
      message = format('version %s of %s is the active one; activate another first', p_version, p_requester_id);
  end if;

  update signing_secrets s
     set retired_at = least(s.retired_at, v_now)
   where s.requester_id = p_requester_id
     and s.version = p_version;
  perform _log_act('retire_signing_secret', format('%s version %s', p_requester_id, p_version), p_why);
end;
$$;

comment on function euterpe.retire_signing_secret_v1 is 'Signs nothing with this secret any more; never the active one.';
revoke execute on function euterpe.retire_signing_secret_v1 from public;
