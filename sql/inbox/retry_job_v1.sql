-- retry_job_v1: a job that rests as failed goes back to the line.
--
--   caller  euterpe-api for its requester; an operator, for any (p_requester_id null)
--   writes  inbox_jobs, through _end_or_requeue; ready; job_secrets when credentials are given; operator_log
--   emits   queued, reason retried
--   raises  22023  p_sealed is no sealed secret
--           UT002  it does not rest as failed, or its budget is spent: then redrive it
--           UT004  no such job, or another requester's
--           UT008  its credentials are gone, none were given, and none can be asked for
--           UT009  credential_version is not the expected one any more
--           UT011  not read committed
--   see     contract §3: failed -> queued; design §5.5
--
-- With no credentials stored and a refresh_url the job starts at the refresh call.
create or replace function euterpe.retry_job_v1(
  p_job_id           uuid,
  p_requester_id     text    default null,
  p_sealed           jsonb   default null,
  p_expected_version integer default null,
  p_why              text    default null
)
returns void
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now timestamptz;
  v_job inbox_jobs%rowtype;
begin
  perform _insist_read_committed();
  v_job := _take_job(p_job_id, p_requester_id);
  v_now := _now();
  if v_job.status <> 'failed' or v_job.attempt_count >= v_job.max_attempts then
    raise exception using
      errcode = 'UT002',
      message = case when v_job.status = 'failed'
                     then format('job %s has used its %s attempts; redrive_job_v1 makes a new one', p_job_id, v_job.max_attempts)
                     else format('job %s does not rest as failed: %s', p_job_id, v_job.status) end;
  end if;

  if p_sealed is not null then
    perform _store_credentials(v_now, p_job_id, p_expected_version, p_sealed);
  elsif v_job.credential_version > 0 and not v_job.can_refresh
        and not exists (select from job_secrets s where s.job_id = p_job_id and s.purpose = 'storage') then
    raise exception using
      errcode = 'UT008',
      message = format('the credentials of job %s are gone; give new ones', p_job_id);
  end if;

  perform _end_or_requeue(v_now, array[
    (p_job_id, 'queued', null, null, null, null, null, 'retried', null, null, null, null, null, null)::_step]);
  if p_requester_id is null then
    perform _log_act('retry_job', p_job_id::text, p_why, p_job_id);
  end if;
end;
$$;

comment on function euterpe.retry_job_v1 is 'Puts a job that rests as failed back in the line, while it has budget.';
revoke execute on function euterpe.retry_job_v1 from public;
