-- _take_job: lock one job and read it, for whoever speaks of a single one.
--
--   caller  cancel_job_v1, retry_job_v1, redrive_job_v1, prioritise_job_v1, replace_credentials_v1
--   locks   inbox_jobs, for no key update
--   raises  UT004  no such job, or another requester's: the two cannot be told apart
--
-- p_requester_id null: an operator, for any. Read in a later statement than the lock: what is decided by it stays true.
create or replace function euterpe._take_job(
  p_job_id       uuid,
  p_requester_id text
)
returns euterpe.inbox_jobs
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_job inbox_jobs%rowtype;
begin
  perform _insist_requester(p_requester_id);
  perform _lock_jobs(array[p_job_id]);
  select j.* into v_job
    from inbox_jobs j
   where j.job_id = p_job_id
     and (p_requester_id is null or j.requester_id = p_requester_id);
  if not found then
    raise exception using errcode = 'UT004', message = format('there is no job %s', p_job_id);
  end if;
  return v_job;
end;
$$;

comment on function euterpe._take_job is 'Locks one job and reads it; raises UT004 when it is not there, or not theirs.';
revoke execute on function euterpe._take_job from public;
