-- _bucket: the last byte of every job id of a requester.
--
--   caller  _new_id, _job_complaint, _is_pruned
--
-- Why: work can later be spread over several databases by this byte, and every id says where it lives.
create or replace function euterpe._bucket(
  p_requester_id text
)
returns integer
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return get_byte(sha256(convert_to(p_requester_id, 'UTF8')), 0);
end;
$$;

comment on function euterpe._bucket is 'First byte of SHA-256 of the requester_id: the last byte of its job ids.';
revoke execute on function euterpe._bucket from public;
