-- _insist_partition: say clearly that the week of an id has no partition.
--
--   caller  _enqueue_jobs, once per week of its jobs
--   raises  UT007  no partition covers the id
--
-- Postgres would refuse the insert anyway; this names the remedy.
create or replace function euterpe._insist_partition(
  p_job_id uuid
)
returns void
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
begin
  if not _has_partition(p_job_id) then
    raise exception using
      errcode = 'UT007',
      message = format('no partition for jobs of %s', _id_time(p_job_id)),
      hint    = 'select * from euterpe.upkeep_v1(); makes the partitions of the next four weeks';
  end if;
end;
$$;

comment on function euterpe._insist_partition is 'Raises UT007 when no partition covers a job id.';
revoke execute on function euterpe._insist_partition from public;
