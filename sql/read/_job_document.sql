-- _job_document: the status document of a job, as GET /transcode/status answers it.
--
--   caller  read_job_v1
--   cost    one job, its request's metadata, its results, its events
--   see     design §6; nothing secret is in any of these rows
--
-- Built here, so that whoever shows a job shows the same. Statuses are handed through as text: an old pod can report
-- one it has never heard of.
create or replace function euterpe._job_document(
  p_now timestamptz,
  p_job euterpe.inbox_jobs
)
returns jsonb
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_metadata jsonb;
  v_source   jsonb;
  v_outputs  jsonb;
  v_spent    jsonb;
begin
  select r.metadata into v_metadata from job_requests r where r.job_id = p_job.job_id;
  select r.source, r.outputs into v_source, v_outputs from job_results r where r.job_id = p_job.job_id;

  -- How long it was in each phase, over all attempts; the one it is in counts until now.
  with spells as (
    select case when e.to_status = 'claimed' then 'queued' else e.to_status end as phase,
           coalesce(lead(e.created_at) over (order by e.sequence), p_now) - e.created_at as length
      from job_outbox_events e
     where e.job_id = p_job.job_id
  )
  select jsonb_build_object('queued', 0, 'fetching', 0, 'processing', 0, 'uploading', 0)
         || coalesce(jsonb_object_agg(s.phase, s.ms), '{}')
    into v_spent
    from (select x.phase, (extract(epoch from sum(x.length)) * 1000)::bigint as ms
            from spells x
           where x.phase in ('queued', 'fetching', 'processing', 'uploading')
           group by x.phase) s;

  return jsonb_build_object(
    'job_id',             p_job.job_id,
    'external_id',        p_job.external_id,
    'status',             p_job.status,
    'attempt_count',      p_job.attempt_count,
    'max_attempts',       p_job.max_attempts,
    'claim_version',      p_job.claim_version,
    'worker_id',          p_job.worker_id,
    'credential_version', p_job.credential_version,
    'progress',           p_job.progress,
    'source',             v_source,
    'outputs',            coalesce(v_outputs, '[]'),
    'error',              case when p_job.status <> 'succeeded' then p_job.last_error end,
    'next_attempt_at',    case when p_job.status = 'queued' then _utc(p_job.run_at) end,
    'timings_ms',         v_spent,
    'metadata',           coalesce(v_metadata, '{}'),
    'redriven_as',        p_job.redriven_as,
    'redrive_of',         p_job.redrive_of,
    'created_at',         _utc(p_job.created_at),
    'started_at',         _utc(p_job.started_at),
    'updated_at',         _utc(p_job.updated_at),
    'finished_at',        _utc(p_job.finished_at));
end;
$$;

comment on function euterpe._job_document is 'The status document of a job; nothing secret is in it.';
revoke execute on function euterpe._job_document from public;
