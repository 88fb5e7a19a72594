-- advance_jobs_v1: a worker's jobs take one legal step forward.
--
--   caller  euterpe-transcode
--   writes  inbox_jobs, through _transition; claimed -> fetching starts an attempt
--   emits   one event per step
--   raises  22023  a status that is not fetching, processing or uploading; see _insist_batch
--           UT011  not read committed
--   answers per job: ok · stale · cancelled · illegal
--   see     contract §3, §4
create or replace function euterpe.advance_jobs_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[],
  p_to_statuses    text[]
)
returns table (
  job_id        uuid,
  outcome       text,
  attempt_count integer
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
begin
  perform _insist_batch('advance_jobs_v1', p_job_ids, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_to_statuses)]);
  if not p_to_statuses <@ array['fetching', 'processing', 'uploading'] then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'advance_jobs_v1: p_to_statuses may hold fetching, processing and uploading';
  end if;
  perform _lock_jobs(p_job_ids);

  -- coalesce: a null is not a way around the fence.
  return query
  select t.job_id, t.outcome, t.attempt_count
    from _transition(_now(), array(
           select (s.job_id, s.to_status, coalesce(s.claim_version, 0), s.claim_token, p_worker_id,
                   null, null, null, null, null, null, null, null, null)::_step
             from unnest(p_job_ids, p_claim_versions, p_claim_tokens, p_to_statuses)
                  as s (job_id, claim_version, claim_token, to_status))) t;
end;
$$;

comment on function euterpe.advance_jobs_v1 is
  'A worker''s jobs take one legal step: fetching, processing or uploading; answers per job.';
revoke execute on function euterpe.advance_jobs_v1 from public;
