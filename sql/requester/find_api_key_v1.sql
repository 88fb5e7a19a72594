-- find_api_key_v1: what is known of a key, for the HTTP tier to compare and judge.
--
--   caller  euterpe-api
--   writes  api_keys.last_used_at, at most once a minute
--   answers one row, or none; is_valid is false for a revoked or expired key, is_disabled says the same of its requester
create or replace function euterpe.find_api_key_v1(
  p_key_id text
)
returns table (
  requester_id        text,
  key_hash            bytea,
  pepper_version      smallint,
  scopes              text[],
  is_valid            boolean,
  is_disabled         boolean,
  requests_per_second integer,
  request_burst       integer,
  max_open_jobs       integer
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now timestamptz := _now();
begin
  -- Whoever holds the row, an operator who is revoking it, is not waited for.
  with unused as materialized (
    select k.key_id
      from api_keys k
     where k.key_id = p_key_id
       and (k.last_used_at is null or k.last_used_at < v_now - interval '1 minute')
       for no key update skip locked
  )
  update api_keys k
     set last_used_at = v_now
   where k.key_id in (select u.key_id from unused u);

  return query
  select k.requester_id, k.key_hash, k.pepper_version, k.scopes,
         k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now),
         r.disabled_at is not null,
         r.requests_per_second, r.request_burst, r.max_open_jobs
    from api_keys k
    join requesters r on r.requester_id = k.requester_id
   where k.key_id = p_key_id;
end;
$$;

comment on function euterpe.find_api_key_v1 is 'What is known of an API key: its hash, scopes, validity and limits.';
revoke execute on function euterpe.find_api_key_v1 from public;
