-- _lock_jobs: take the row locks of a batch, always in id order.
--
--   caller  every function that a worker calls about jobs it holds
--   locks   inbox_jobs, for no key update
--
-- Why a statement of its own: two batches that name the same jobs in different orders must wait for each
-- other, not deadlock; and what is read after it, is read with a snapshot from after the lock.
create or replace function euterpe._lock_jobs(
  p_job_ids uuid[]
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  perform 1
     from inbox_jobs j
    where j.job_id = any (p_job_ids)
    order by j.job_id
      for no key update;
end;
$$;

comment on function euterpe._lock_jobs is 'Locks the rows of a batch of jobs in id order.';
revoke execute on function euterpe._lock_jobs from public;
