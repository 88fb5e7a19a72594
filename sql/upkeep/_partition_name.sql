-- _partition_name: what the partition of a table for a week is called: inbox_jobs_p20261116, by its Monday.
--
--   caller  _make_partitions, _has_partition
create or replace function euterpe._partition_name(
  p_table text,
  p_at    timestamptz
)
returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
begin
  return p_table || to_char(date_trunc('week', p_at), '"_p"YYYYMMDD');
end;
$$;

comment on function euterpe._partition_name is 'Name of the partition of a table for the week of an instant.';
revoke execute on function euterpe._partition_name from public;
