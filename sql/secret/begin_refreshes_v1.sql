-- begin_refreshes_v1: a worker is about to ask for new credentials; may it?
--
--   caller  euterpe-transcode, before each call of a refresh_url
--   writes  inbox_jobs (credential_refresh_count, credential_refresh_streak)
--   raises  22023, UT011  see _insist_batch
--   answers per job: ok · stale · cancelled · exhausted (three in a row did not help, or fifty in all): fail the job
--           with credential_refresh_exhausted; with the credential_version that must advance
--   see     contract §5 (a counter of its own), §7; design §5.10
--
-- storage_worked: a storage call succeeded since the last refresh, so that one helped and the row is broken.
create or replace function euterpe.begin_refreshes_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[],
  p_storage_worked boolean[]
)
returns table (
  job_id             uuid,
  outcome            text,
  credential_version integer
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  perform _insist_batch('begin_refreshes_v1', p_job_ids, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_storage_worked)]);
  perform _lock_jobs(p_job_ids);

  return query
  with judged as materialized (
    select s.job_id, s.nth, s.storage_worked, j.credential_version,
           -- A job in the line has neither token nor worker: nulls are not a way around the fence.
           case when j.claim_token is null
                  or (j.claim_version, j.claim_token, j.worker_id)
                     is distinct from (s.claim_version, s.claim_token, p_worker_id)
                then case when j.claim_version = s.claim_version and j.last_error ->> 'code' = 'cancelled'
                          then 'cancelled' else 'stale' end
                when j.credential_refresh_count >= 50
                  or (j.credential_refresh_streak >= 3 and not coalesce(s.storage_worked, false)) then 'exhausted'
                else 'ok' end as verdict
      from unnest(p_job_ids, p_claim_versions, p_claim_tokens, p_storage_worked)
           with ordinality as s (job_id, claim_version, claim_token, storage_worked, nth)
      left join (select i.job_id, i.claim_version, i.claim_token, i.worker_id, i.last_error, i.credential_version,
                        i.credential_refresh_count, i.credential_refresh_streak
                   from inbox_jobs i where i.job_id = any (p_job_ids)) j on j.job_id = s.job_id
  ), counted as (
    update inbox_jobs j
       set credential_refresh_count  = j.credential_refresh_count + 1,
           credential_refresh_streak = case when d.storage_worked then 1 else j.credential_refresh_streak + 1 end
      from judged d
     where j.job_id = any (p_job_ids)
       and j.job_id = d.job_id
       and d.verdict = 'ok'
  )
  select d.job_id, d.verdict, case when d.verdict in ('ok', 'exhausted') then d.credential_version end
    from judged d
   order by d.nth;
end;
$$;

comment on function euterpe.begin_refreshes_v1 is
  'Counts a credential refresh of each job: at most three in a row without a storage call that worked, fifty in all.';
revoke execute on function euterpe.begin_refreshes_v1 from public;
