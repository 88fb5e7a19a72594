-- revoke_api_key_v1: a key is not valid any more.
--
--   caller  the command line, an operator
--   writes  api_keys.revoked_at, operator_log
--   raises  UT004  no such key
create or replace function euterpe.revoke_api_key_v1(
  p_key_id text,
  p_why    text default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
begin
  update api_keys k
     set revoked_at = coalesce(k.revoked_at, _now())
   where k.key_id = p_key_id;
  if not found then
    raise exception using errcode = 'UT004', message = format('there is no key %s', p_key_id);
  end if;
  perform _log_act('revoke_api_key', p_key_id, p_why);
end;
$$;

comment on function euterpe.revoke_api_key_v1 is 'Makes an API key invalid.';
revoke execute on function euterpe.revoke_api_key_v1 from public;
