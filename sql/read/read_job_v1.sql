-- read_job_v1: what a requester may know of one of its jobs.
--
--   caller  euterpe-api
--   writes  nothing
--   answers one row, always: ok, with the status document, its last event's number and whether nothing follows by itself;
--           unknown (also another requester's job: the two cannot be told apart); or pruned
--   see     contract §6; design §6
create or replace function euterpe.read_job_v1(
  p_requester_id text,
  p_job_id       uuid
)
returns table (
  outcome       text,
  document      jsonb,
  last_sequence integer,
  is_final      boolean
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now timestamptz := _now();
  v_job inbox_jobs%rowtype;
begin
  select j.* into v_job from inbox_jobs j where j.job_id = p_job_id and j.requester_id = p_requester_id;
  if not found then
    return query
    select case when _is_pruned(v_now, p_requester_id, p_job_id) then 'pruned' else 'unknown' end,
           null::jsonb, null::integer, null::boolean;
    return;
  end if;
  return query
  select 'ok', _job_document(v_now, v_job), v_job.last_sequence, v_job.finished_at is not null;
end;
$$;

comment on function euterpe.read_job_v1 is 'The status document of one of a requester''s jobs; or unknown, or pruned.';
revoke execute on function euterpe.read_job_v1 from public;
