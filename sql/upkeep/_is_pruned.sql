-- _is_pruned: was this a job once? Decided from the id alone, without tombstones.
--
--   caller  orphan_check_v1, read_job_v1, read_events_v1
--   see     contract §6: 410 for pruned historical jobs
--
-- Only when the id is a v7 of this requester's bucket, from the past, and no partition covers it. Every other
-- miss is an unknown id.
create or replace function euterpe._is_pruned(
  p_now          timestamptz,
  p_requester_id text,
  p_job_id       uuid
)
returns boolean
language sql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
  select substr(p_job_id::text, 15, 1) = '7'
     and get_byte(uuid_send(p_job_id), 15) = _bucket(p_requester_id)
     and _id_time(p_job_id) < p_now
     and not _has_partition(p_job_id)
$$;

comment on function euterpe._is_pruned is 'Whether an id can be that of a job whose partition was dropped.';
revoke execute on function euterpe._is_pruned from public;
