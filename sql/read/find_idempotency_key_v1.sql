-- find_idempotency_key_v1: what was answered under a key, without using it up.
--
--   caller  euterpe-api, before a limit refuses a request: a replay is never limited
--   writes  nothing
--   answers one row, or none: the key is free
--   see     contract §9; design §5.9
create or replace function euterpe.find_idempotency_key_v1(
  p_requester_id    text,
  p_idempotency_key text
)
returns table (
  request_hash bytea,
  hash_version smallint,
  response     bytea,
  job_id       uuid
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
as $$
begin
  return query
  select k.request_hash, k.hash_version, k.response, k.job_id
    from idempotency_keys k
   where k.requester_id = p_requester_id and k.idempotency_key = p_idempotency_key and k.expires_at > _now();
end;
$$;

comment on function euterpe.find_idempotency_key_v1 is 'What was answered under an idempotency key, without using it up.';
revoke execute on function euterpe.find_idempotency_key_v1 from public;
