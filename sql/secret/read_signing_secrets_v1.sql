-- read_signing_secrets_v1: the sealed signing secrets of requesters that sign now.
--
--   caller  euterpe-webhook; euterpe-transcode, whose refresh calls are signed, too; the command line, to show them
--   writes  nothing
--   raises  22023  p_requester_ids is empty or longer than 1000
--   answers per requester the active one first; a requester without one has no row
--   see     contract §8; design §5.11
--
-- Ciphertext only. The active one makes the contract's signature; Standard Webhooks has room for all of them.
create or replace function euterpe.read_signing_secrets_v1(
  p_requester_ids text[]
)
returns table (
  requester_id       text,
  version            integer,
  is_active          boolean,
  encrypted          bytea,
  dek_wrapped        bytea,
  kek_id             text,
  encryption_version smallint,
  created_at         timestamptz,
  activated_at       timestamptz,
  retired_at         timestamptz
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now timestamptz := _now();
begin
  if coalesce(cardinality(p_requester_ids), 0) not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('read_signing_secrets_v1: needs 1 to 1000 requesters, got %s', cardinality(p_requester_ids));
  end if;

  return query
  select s.requester_id, s.version,
         s.activated_at is not null
         and row_number() over (partition by s.requester_id order by s.activated_at desc nulls last, s.version desc) = 1,
         s.secret_encrypted, s.secret_dek_wrapped, s.secret_kek_id, s.encryption_version,
         s.created_at, s.activated_at, s.retired_at
    from signing_secrets s
   where s.requester_id = any (p_requester_ids)
     and (s.retired_at is null or s.retired_at > v_now)
   order by s.requester_id, s.activated_at desc nulls last, s.version desc;
end;
$$;

comment on function euterpe.read_signing_secrets_v1 is
  'The sealed signing secrets of requesters that sign now, the active one first.';
revoke execute on function euterpe.read_signing_secrets_v1 from public;
