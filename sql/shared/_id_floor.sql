-- _id_floor: the lowest UUIDv7 of an instant; a time range is an id range.
--
--   caller  _make_partitions, prunable_weeks_v1, redeliver_events_v1, _mend_heads, _matching_jobs,
--           euterpe-migrate retain
create or replace function euterpe._id_floor(
  p_at timestamptz
)
returns uuid
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select rpad(lpad(to_hex((extract(epoch from p_at) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

comment on function euterpe._id_floor is 'The lowest UUIDv7 that an instant can have.';
revoke execute on function euterpe._id_floor from public;
