-- _read_job: one item of enqueue_jobs_v1 as a row; what cannot be read becomes a complaint.
--
--   caller  enqueue_jobs_v1
--
-- The exception block costs a subtransaction per item, but no xid: nothing is written in it.
create or replace function euterpe._read_job(
  p_ordinal integer,
  p_item    jsonb
)
returns euterpe._new_job
language plpgsql
stable
set search_path = euterpe, pg_temp
as $$
declare
  v_job _new_job;
begin
  if jsonb_typeof(p_item) <> 'object' then
    v_job.complaint := 'must be a JSON object';
  else
    v_job           := jsonb_populate_record(null::_new_job, p_item);
    v_job.complaint := null;
    v_job.priority  := coalesce(v_job.priority, 100);
  end if;
  v_job.ordinal := p_ordinal;
  return v_job;
exception when data_exception then
  v_job           := null;
  v_job.ordinal   := p_ordinal;
  v_job.complaint := sqlerrm;
  return v_job;
end;
$$;

comment on function euterpe._read_job is 'One item of enqueue_jobs_v1 as a row; what cannot be read becomes a complaint.';
revoke execute on function euterpe._read_job from public;
