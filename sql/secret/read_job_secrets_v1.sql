-- read_job_secrets_v1: the sealed secrets of jobs, for the worker that holds them.
--
--   caller  euterpe-transcode: when it starts, and again after a refresh
--   writes  nothing
--   raises  22023, UT011  see _insist_batch
--   answers one row per job and purpose; a job whose claim is not the caller's has one row: stale, and nothing in it
--   see     contract §7, §10
--
-- Ciphertext only: it is opened in the worker's memory. A job without secrets has one row, ok, purpose null.
create or replace function euterpe.read_job_secrets_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[]
)
returns table (
  job_id             uuid,
  outcome            text,
  purpose            text,
  encrypted          bytea,
  dek_wrapped        bytea,
  kek_id             text,
  encryption_version smallint,
  credential_version integer,
  bound_to           uuid
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  perform _insist_batch('read_job_secrets_v1', p_job_ids, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens)]);

  return query
  select s.job_id, case when j.job_id is not null then 'ok' else 'stale' end, x.purpose, x.storage_creds_encrypted,
         x.storage_creds_dek_wrapped, x.storage_creds_kek_id, x.storage_creds_encryption_version,
         x.credential_version, coalesce(x.bound_to, x.job_id)
    from unnest(p_job_ids, p_claim_versions, p_claim_tokens)
         with ordinality as s (job_id, claim_version, claim_token, nth)
    left join inbox_jobs j
      on j.job_id = any (p_job_ids) and j.job_id = s.job_id and j.claim_version = s.claim_version
     and j.claim_token = s.claim_token and j.worker_id = p_worker_id
    left join job_secrets x on x.job_id = any (p_job_ids) and x.job_id = j.job_id
   order by s.nth, x.purpose;
end;
$$;

comment on function euterpe.read_job_secrets_v1 is
  'The sealed secrets of jobs, for the worker that holds them and for nobody else.';
revoke execute on function euterpe.read_job_secrets_v1 from public;
