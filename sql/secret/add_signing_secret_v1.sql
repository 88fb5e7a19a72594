-- add_signing_secret_v1: store a requester's next signing secret, sealed.
--
--   caller  the command line: with a new requester, and to rotate
--   writes  signing_secrets, operator_log
--   raises  22023  p_sealed is no sealed secret
--           UT002  one waits to be activated already, or four are in use
--           UT004  no such requester
--           UT009  p_version is not the next one any more
--           23514  it is too long for a signing secret
--   see     contract §8; design §5.11
--
-- The first one is active at once. A later one only adds its signature to those of Standard Webhooks until it is
-- activated: the receiver learns it meanwhile. Four, because each has its signature in one header of every webhook.
create or replace function euterpe.add_signing_secret_v1(
  p_requester_id text,
  p_version      integer,
  p_sealed       jsonb,
  p_why          text default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now     timestamptz;
  v_in_use  integer;
  v_waiting integer;
begin
  if _sealed_complaint(p_sealed) is not null then
    raise exception using errcode = 'invalid_parameter_value', message = _sealed_complaint(p_sealed);
  end if;
  perform from requesters r where r.requester_id = p_requester_id for no key update;
  if not found then
    raise exception using errcode = 'UT004', message = format('there is no requester %s', p_requester_id);
  end if;
  v_now := _now();
  if p_version is distinct from next_signing_version_v1(p_requester_id) then
    raise exception using
      errcode = 'UT009',
      message = format('the next signing secret of %s has version %s, not %s',
                       p_requester_id, next_signing_version_v1(p_requester_id), p_version);
  end if;

  select count(*), max(s.version) filter (where s.activated_at is null)
    into v_in_use, v_waiting
    from signing_secrets s
   where s.requester_id = p_requester_id
     and (s.retired_at is null or s.retired_at > v_now);
  if v_waiting is not null or v_in_use >= 4 then
    raise exception using
      errcode = 'UT002',
      message = case when v_waiting is not null
                     then format('version %s waits to be activated; activate or retire it first', v_waiting)
                     else format('%s signing secrets are in use; retire one first', v_in_use) end;
  end if;

  insert into signing_secrets (requester_id, version, secret_encrypted, secret_dek_wrapped, secret_kek_id,
                               encryption_version, created_at, activated_at)
  values (p_requester_id, p_version, (p_sealed ->> 'encrypted')::bytea, (p_sealed ->> 'dek_wrapped')::bytea,
          p_sealed ->> 'kek_id', (p_sealed ->> 'encryption_version')::smallint, v_now,
          case when v_in_use = 0 then v_now end);
  perform _log_act('add_signing_secret', format('%s version %s', p_requester_id, p_version), p_why);
end;
$$;

comment on function euterpe.add_signing_secret_v1 is
  'Stores a requester''s next signing secret, sealed; the first is active at once, a later one when it is activated.';
revoke execute on function euterpe.add_signing_secret_v1 from public;
