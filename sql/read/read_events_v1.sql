-- read_events_v1: the timeline of one of a requester's jobs, with what each delivery attempt met.
--
--   caller  euterpe-api
--   writes  nothing
--   answers one row, always: ok, with the events as a JSON array in order; unknown; or pruned
--   cost    the events and attempts of one job
--   see     design §6: GET /transcode/events
--
-- What an endpoint answered is not shown: it is kept for operators, and may be anybody's words.
create or replace function euterpe.read_events_v1(
  p_requester_id text,
  p_job_id       uuid
)
returns table (
  outcome text,
  events  jsonb
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  if not exists (select from inbox_jobs j where j.job_id = p_job_id and j.requester_id = p_requester_id) then
    return query
    select case when _is_pruned(_now(), p_requester_id, p_job_id) then 'pruned' else 'unknown' end, null::jsonb;
    return;
  end if;
  return query
  select 'ok',
         jsonb_agg(jsonb_build_object(
           'event_id',        e.event_id,
           'sequence',        e.sequence,
           'type',            e.type,
           'status',          e.to_status,
           'previous_status', e.from_status,
           'reason',          e.reason,
           'timestamp',       _utc(e.created_at),
           'delivery',        e.status,
           'next_attempt_at', case when e.status = 'ready' then _utc(e.run_at) end,
           'attempts',        coalesce(a.attempts, '[]')) order by e.sequence)
    from job_outbox_events e
    left join lateral (
         select jsonb_agg(jsonb_build_object(
                  'attempt',     t.attempt,
                  'at',          _utc(t.started_at),
                  'http_status', t.http_status,
                  'error_class', t.error_class,
                  'duration_ms', t.duration_ms) order by t.attempt) as attempts
           from outbox_attempts t
          where t.job_id = p_job_id and t.sequence = e.sequence) a on true
   where e.job_id = p_job_id;
end;
$$;

comment on function euterpe.read_events_v1 is 'The timeline of one of a requester''s jobs, with what each delivery attempt met.';
revoke execute on function euterpe.read_events_v1 from public;
