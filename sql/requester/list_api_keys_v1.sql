-- list_api_keys_v1: which API keys there are, and what has become of each; never a hash.
--
--   caller  the command line
--   raises  UT004  no such requester
--   answers a row per key, also of those that are not valid any more, oldest first; of everybody (p_requester_id null)
--           or of one; at most 10,000
create or replace function euterpe.list_api_keys_v1(
  p_requester_id text default null
)
returns table (
  key_id       text,
  requester_id text,
  scopes       text[],
  is_valid     boolean,
  created_at   timestamptz,
  last_used_at timestamptz,
  expires_at   timestamptz,
  revoked_at   timestamptz
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now timestamptz := _now();
begin
  if p_requester_id is not null and not exists (select from requesters r where r.requester_id = p_requester_id) then
    raise exception using errcode = 'UT004', message = format('there is no requester %s', p_requester_id);
  end if;
  return query
  select k.key_id, k.requester_id, k.scopes,
         k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now),
         k.created_at, k.last_used_at, k.expires_at, k.revoked_at
    from api_keys k
   where p_requester_id is null or k.requester_id = p_requester_id
   order by k.requester_id, k.created_at, k.key_id
   limit 10000;
end;
$$;

comment on function euterpe.list_api_keys_v1 is 'Which API keys there are, and what has become of each; never a hash.';
revoke execute on function euterpe.list_api_keys_v1 from public;
