-- _virtual_time: V of a line, about the key that is being served now.
--
--   caller  _fair_keys, _put_in_line, _make_ready, _sweep
--   see     docs/line.md
create or replace function euterpe._virtual_time(
  p_queue_id smallint
)
returns bigint
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_sequence_last_value(('euterpe_line.q' || p_queue_id || '_virtual')::regclass);
end;
$$;

comment on function euterpe._virtual_time is
  'Virtual time of a line: no key is put below the V its transaction read.';
revoke execute on function euterpe._virtual_time from public;
