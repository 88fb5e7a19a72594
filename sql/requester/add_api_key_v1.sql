-- add_api_key_v1: store the hash of a new key.
--
--   caller  the command line, which made the key and shows it once
--   writes  api_keys, operator_log
--   raises  UT004  no such requester
--           23505  the key_id is taken; 23514 a value is out of range (the constraint names it)
create or replace function euterpe.add_api_key_v1(
  p_requester_id   text,
  p_key_id         text,
  p_key_hash       bytea,
  p_pepper_version smallint,
  p_scopes         text[]      default array['transcode:write', 'transcode:read'],
  p_expires_at     timestamptz default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
begin
  if not exists (select from requesters r where r.requester_id = p_requester_id) then
    raise exception using errcode = 'UT004', message = format('there is no requester %s', p_requester_id);
  end if;
  insert into api_keys (key_id, requester_id, key_hash, pepper_version, scopes, created_at, expires_at)
  values (p_key_id, p_requester_id, p_key_hash, p_pepper_version, p_scopes, _now(), p_expires_at);
  perform _log_act('add_api_key', p_key_id, null);
end;
$$;

comment on function euterpe.add_api_key_v1 is
  'Stores the keyed hash of a new API key; the key itself never comes here.';
revoke execute on function euterpe.add_api_key_v1 from public;
