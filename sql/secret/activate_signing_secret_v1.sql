-- activate_signing_secret_v1: from now on the contract's own signature is made with this secret.
--
--   caller  the command line, when the receiver knows it
--   writes  signing_secrets, operator_log
--   raises  22023  p_overlap_seconds out of range
--           UT002  it is retired
--           UT004  no such secret
--   see     contract §8; design §5.11
--
-- The others keep signing beside it for a while, in the headers that have room for several: not every receiver
-- changes at once. Until then one may also go back, by activating the old one.
create or replace function euterpe.activate_signing_secret_v1(
  p_requester_id    text,
  p_version         integer,
  p_overlap_seconds integer default 86400,
  p_why             text    default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now    timestamptz;
  v_secret signing_secrets%rowtype;
begin
  if p_overlap_seconds is null or p_overlap_seconds not between 0 and 2592000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('activate_signing_secret_v1: p_overlap_seconds=%s must be in 0..2592000', p_overlap_seconds);
  end if;
  perform from requesters r where r.requester_id = p_requester_id for no key update;
  v_now := _now();
  select s.* into v_secret from signing_secrets s where s.requester_id = p_requester_id and s.version = p_version;
  if not found then
    raise exception using
      errcode = 'UT004',
      message = format('%s has no signing secret of version %s', p_requester_id, p_version);
  end if;
  if v_secret.retired_at <= v_now then
    raise exception using
      errcode = 'UT002',
      message = format('version %s of %s is retired; add a new one', p_version, p_requester_id);
  end if;

  update signing_secrets s
     set activated_at = v_now,
         retired_at   = null
   where s.requester_id = p_requester_id
     and s.version = p_version;
  update signing_secrets s
     set retired_at = least(s.retired_at, v_now + make_interval(secs => p_overlap_seconds))
   where s.requester_id = p_requester_id
     and s.version <> p_version
     and (s.retired_at is null or s.retired_at > v_now);
  perform _log_act('activate_signing_secret', format('%s version %s', p_requester_id, p_version), p_why);
end;
$$;

comment on function euterpe.activate_signing_secret_v1 is
  'Signs with this secret from now on; the others keep signing beside it for p_overlap_seconds.';
revoke execute on function euterpe.activate_signing_secret_v1 from public;
