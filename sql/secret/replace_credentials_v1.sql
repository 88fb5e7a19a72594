-- replace_credentials_v1: a requester brings new storage credentials for a job that has not ended.
--
--   caller  euterpe-api for its requester
--   writes  job_secrets, inbox_jobs.credential_version + 1
--   raises  22023  p_sealed is no sealed secret
--           UT002  the job has ended; a retry takes credentials of its own
--           UT004  no such job, or another requester's
--           UT009  credential_version is not the expected one any more
--           UT011  not read committed
--   answers the new credential_version
--   see     contract §7; design §5.10
create or replace function euterpe.replace_credentials_v1(
  p_job_id           uuid,
  p_requester_id     text,
  p_expected_version integer,
  p_sealed           jsonb
)
returns integer
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_job inbox_jobs%rowtype;
begin
  perform _insist_read_committed();
  v_job := _take_job(p_job_id, coalesce(p_requester_id, ''));
  if v_job.finished_at is not null then
    raise exception using errcode = 'UT002', message = format('job %s has ended already: %s', p_job_id, v_job.status);
  end if;
  return _store_credentials(_now(), p_job_id, p_expected_version, p_sealed);
end;
$$;

comment on function euterpe.replace_credentials_v1 is
  'Replaces the storage credentials of a job that has not ended, if their version is the expected one.';
revoke execute on function euterpe.replace_credentials_v1 from public;
