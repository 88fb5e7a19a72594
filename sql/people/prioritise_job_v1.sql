-- prioritise_job_v1: move a queued job up or down its line.
--
--   caller  an operator
--   writes  inbox_jobs (priority, its place), ready or delayed; operator_log
--   raises  22023  the priority is out of range
--           UT002  it is not queued
--           UT004  no such job
--           UT011  not read committed
--   answers whether its place changed
--   see     docs/line.md: one point is one job of credit
--
-- As if it had been enqueued with that priority; requesters.max_priority does not bind an operator. The old entry
-- is litter from then on.
create or replace function euterpe.prioritise_job_v1(
  p_job_id   uuid,
  p_priority integer,
  p_why      text default null
)
returns boolean
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_job inbox_jobs%rowtype;
  v_key bigint;
  v_seq bigint;
begin
  perform _insist_read_committed();
  if coalesce(p_priority, -1) not between 0 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('prioritise_job_v1: p_priority=%s must be in 0..1000', p_priority);
  end if;
  v_job := _take_job(p_job_id, null);
  if v_job.status <> 'queued' then
    raise exception using
      errcode = 'UT002',
      message = format('job %s is not queued: %s', p_job_id, v_job.status);
  end if;
  if v_job.priority = p_priority then
    return false;
  end if;

  v_key := greatest(0, v_job.line_key + 1000 * (v_job.priority - p_priority));
  v_seq := nextval('euterpe_line.seq');
  update inbox_jobs j
     set priority = p_priority,
         line_key = v_key,
         line_seq = v_seq
   where j.job_id = p_job_id;
  perform _put_in_line(array[v_job.queue_id], array[p_job_id], array[0], array[v_key], array[v_seq], array[v_job.run_at]);
  perform _log_act('prioritise_job', p_job_id::text, coalesce(p_why || ', ', '') || v_job.priority || ' -> ' || p_priority,
                   p_job_id);
  return true;
end;
$$;

comment on function euterpe.prioritise_job_v1 is
  'Moves a queued job up or down its line: 0 to 1000, higher goes first, one point is one job.';
revoke execute on function euterpe.prioritise_job_v1 from public;
