-- _new_id: a UUIDv7 of the requester's bucket, for callers in plain SQL.
--
--   caller  _enqueue_jobs, when no id was given (the API makes its own)
--
-- Layout: 48 bits of Unix milliseconds, version 7, random bits, bucket in the last byte. The variant bits
-- are those of gen_random_uuid. Debian's PostgreSQL 15 has no uuidv7().
create or replace function euterpe._new_id(
  p_requester_id text,
  p_now          timestamptz
)
returns uuid
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_bytes bytea := uuid_send(gen_random_uuid());
begin
  v_bytes := overlay(v_bytes placing substring(int8send((extract(epoch from p_now) * 1000)::bigint) from 3)
                     from 1 for 6);
  v_bytes := set_byte(v_bytes, 6, (get_byte(v_bytes, 6) & 15) | 112);
  v_bytes := set_byte(v_bytes, 15, _bucket(p_requester_id));
  return encode(v_bytes, 'hex')::uuid;
end;
$$;

comment on function euterpe._new_id is 'A UUIDv7 whose last byte is the bucket of the requester.';
revoke execute on function euterpe._new_id from public;
