-- _utc: a time as it stands in JSON.
--
--   caller  every function that puts a time into a document: payloads, status documents, errors, progress
--   see     docs/faces/transcode.md, RFC 3339
--
-- Postgres itself would write it in the time zone of whoever happens to be connected, and with an offset in numbers.
create or replace function euterpe._utc(p_at timestamptz)
returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
end;
$$;

comment on function euterpe._utc is 'A time as it stands in JSON: RFC 3339, in UTC, ending in Z.';
revoke execute on function euterpe._utc from public;
