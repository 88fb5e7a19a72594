-- _id_time: the time inside a UUIDv7.
--
--   caller  _enqueue_jobs (created_at is the id's own time), _job_complaint, _has_partition, _insist_partition,
--           _is_pruned, _sample_queues, _mend_heads, explain_job_v1
create or replace function euterpe._id_time(
  p_id uuid
)
returns timestamptz
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return to_timestamp(('x' || translate(left(p_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0);
end;
$$;

comment on function euterpe._id_time is 'The millisecond in which a UUIDv7 was made.';
revoke execute on function euterpe._id_time from public;
