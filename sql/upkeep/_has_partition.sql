-- _has_partition: does an attached partition cover this id?
--
--   caller  _insist_partition, _is_pruned, explain_job_v1
--
-- A partition that is being dropped exists for a moment longer than it is attached.
create or replace function euterpe._has_partition(
  p_job_id uuid
)
returns boolean
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
begin
  return exists (
    select from pg_class c
     where c.oid = to_regclass('euterpe.' || _partition_name('inbox_jobs', _id_time(p_job_id)))
       and c.relispartition);
end;
$$;

comment on function euterpe._has_partition is 'Whether an attached partition covers a job id.';
revoke execute on function euterpe._has_partition from public;
