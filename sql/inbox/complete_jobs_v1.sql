-- complete_jobs_v1: a worker's jobs have succeeded.
--
--   caller  euterpe-transcode
--   writes  inbox_jobs, through _transition; job_results
--   emits   one succeeded event per job, with its outputs
--   raises  22023, UT011  see _insist_batch
--   answers per job: ok · stale · cancelled · illegal (not uploading, or outputs that are no JSON array)
--   see     contract §3, §4, §8
create or replace function euterpe.complete_jobs_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[],
  p_sources        jsonb[],
  p_outputs        jsonb[]
)
returns table (
  job_id  uuid,
  outcome text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now      timestamptz := _now();
  v_ids      uuid[];
  v_outcomes text[];
begin
  perform _insist_batch('complete_jobs_v1', p_job_ids, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens), cardinality(p_sources), cardinality(p_outputs)]);
  perform _lock_jobs(p_job_ids);

  -- An item with unusable outputs is asked for a step that does not exist, and so answered illegal.
  select array_agg(t.job_id), array_agg(t.outcome)
    into v_ids, v_outcomes
    from _transition(v_now, array(
           select (s.job_id, case when jsonb_typeof(s.outputs) = 'array' then 'succeeded' end,
                   coalesce(s.claim_version, 0), s.claim_token, p_worker_id,
                   null, null, null, null, s.outputs, true, null, null, null)::_step
             from unnest(p_job_ids, p_claim_versions, p_claim_tokens, p_outputs)
                  as s (job_id, claim_version, claim_token, outputs))) t;

  insert into job_results (job_id, source, outputs, created_at)
  select s.job_id, case when jsonb_typeof(s.source) = 'object' then s.source end, s.outputs, v_now
    from unnest(p_job_ids, p_sources, p_outputs) as s (job_id, source, outputs)
    join unnest(v_ids, v_outcomes) as o (job_id, outcome) on o.job_id = s.job_id
   where o.outcome = 'ok';

  return query
  select o.job_id, o.outcome from unnest(v_ids, v_outcomes) as o (job_id, outcome);
end;
$$;

comment on function euterpe.complete_jobs_v1 is
  'A worker''s jobs have succeeded: stores their results; answers per job.';
revoke execute on function euterpe.complete_jobs_v1 from public;
