-- cancel_job_v1: end a job that nobody needs any more.
--
--   caller  euterpe-api for its requester; an operator, for any (p_requester_id null)
--   writes  inbox_jobs, through _transition; operator_log when an operator does it
--   emits   queued: claimed and failed, both with reason cancelled · running: failed
--   raises  UT002  it has ended already
--           UT004  no such job, or another requester's
--           UT011  not read committed
--   answers the status it had
--   see     design §5.6: there is no cancelled state
--
-- A queued job goes by way of claimed, because the contract has no shorter road; its entry in the line is litter from
-- then on, and the claim that meets it deletes it. A running job loses its token: its worker learns it with the next
-- heartbeat, and whatever it says until then is answered cancelled.
create or replace function euterpe.cancel_job_v1(
  p_job_id       uuid,
  p_requester_id text default null,
  p_why          text default null
)
returns text
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now timestamptz;
  v_job inbox_jobs%rowtype;
begin
  perform _insist_read_committed();
  v_job := _take_job(p_job_id, p_requester_id);
  v_now := _now();
  if v_job.finished_at is not null then
    raise exception using
      errcode = 'UT002',
      message = format('job %s has ended already: %s', p_job_id, v_job.status);
  end if;

  if v_job.status = 'queued' then
    perform _transition(v_now, array[
      (p_job_id, 'claimed', null, null, 'cancel', gen_random_uuid(), v_now,
       'cancelled', null, null, null, null, null, null)::_step]);
  end if;
  perform _end_or_requeue(v_now, array[
    (p_job_id, 'failed', null, null, null, null, null, 'cancelled',
     jsonb_build_object('code', 'cancelled', 'class', 'control', 'message', coalesce(left(p_why, 2000), 'cancelled'),
                        'retryable', false, 'phase', v_job.status, 'attempt', v_job.attempt_count,
                        'occurred_at', _utc(v_now)),
     null, null, null, null, null)::_step]);

  if p_requester_id is null then
    perform _log_act('cancel_job', p_job_id::text, p_why, p_job_id);
  end if;
  return v_job.status;
end;
$$;

comment on function euterpe.cancel_job_v1 is
  'Ends a queued or running job as failed, code cancelled; its worker learns it with the next heartbeat.';
revoke execute on function euterpe.cancel_job_v1 from public;
