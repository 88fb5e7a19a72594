-- store_refreshed_v1: a worker stores the credentials that the answer to its refresh call carried.
--
--   caller  euterpe-transcode
--   writes  job_secrets, inbox_jobs.credential_version + 1
--   raises  22023  p_sealed is no sealed secret
--           UT009  credential_version is not the expected one any more: somebody put newer ones
--           UT011  not read committed
--   answers ok · stale · cancelled
--   see     contract §4, §7; design §5.10
--
-- Fenced like everything a worker writes: whoever has lost a job leaves its credentials alone.
create or replace function euterpe.store_refreshed_v1(
  p_worker_id        text,
  p_job_id           uuid,
  p_claim_version    bigint,
  p_claim_token      uuid,
  p_expected_version integer,
  p_sealed           jsonb
)
returns text
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
  perform _lock_jobs(array[p_job_id]);
  select * into v_job from inbox_jobs j where j.job_id = p_job_id;
  -- A job in the line has neither token nor worker: nulls are not a way around the fence.
  if v_job.claim_token is null
     or (v_job.claim_version, v_job.claim_token, v_job.worker_id)
        is distinct from (p_claim_version, p_claim_token, p_worker_id) then
    return case when v_job.claim_version = p_claim_version and v_job.last_error ->> 'code' = 'cancelled'
                then 'cancelled' else 'stale' end;
  end if;
  perform _store_credentials(_now(), p_job_id, p_expected_version, p_sealed);
  return 'ok';
end;
$$;

comment on function euterpe.store_refreshed_v1 is
  'Stores the credentials that the answer to a refresh call carried, behind the fence of the worker that asked.';
revoke execute on function euterpe.store_refreshed_v1 from public;
