-- _end_or_requeue: every way out of the running states but success, and the way back from failed.
--
--   caller  fail_jobs_v1, release_jobs_v1, cancel_job_v1, retry_job_v1, after_restore_v1, _reclaim_jobs; they hold the row
--           locks and have decided
--   writes  through _transition; ready or delayed for what goes back
--   emits   queued · failed (final) · failed and then dead_letter
--   answers per step, as _transition
--
-- to_status says where the job should end up. A dead letter goes by way of failed, because the contract
-- has no shorter road: two transitions and two events in one transaction.
create or replace function euterpe._end_or_requeue(
  p_now   timestamptz,
  p_steps euterpe._step[]
)
returns table (
  job_id  uuid,
  outcome text
)
language plpgsql
volatile
set search_path = euterpe, pg_temp
as $$
declare
  v_first     _step[];
  v_ok        uuid[];
  v_outcomes  text[];
  v_ids       uuid[];
  v_queue_ids smallint[];
  v_line_keys bigint[];
begin
  select array_agg((s.job_id,
                    case when s.to_status = 'dead_letter' then 'failed' else s.to_status end,
                    s.claim_version, s.claim_token, s.worker_id, null, null, s.reason, s.error, null,
                    s.to_status = 'failed', s.gives_back, s.run_at,
                    case when s.to_status = 'queued' then nextval('euterpe_line.seq') end)::_step)
    into v_first
    from unnest(p_steps) s;

  select array_agg(t.job_id), array_agg(t.outcome),
         array_agg(t.queue_id), array_agg(t.line_key)
    into v_ids, v_outcomes, v_queue_ids, v_line_keys
    from _transition(p_now, v_first) t;

  v_ok := array(select o.job_id from unnest(v_ids, v_outcomes) as o (job_id, outcome) where o.outcome = 'ok');

  perform _put_in_line(array_agg(o.queue_id), array_agg(s.job_id), array_agg(0),
                       array_agg(o.line_key), array_agg(s.line_seq), array_agg(s.run_at))
     from unnest(v_first) s
     join unnest(v_ids, v_outcomes, v_queue_ids, v_line_keys) as o (job_id, outcome, queue_id, line_key)
       on o.job_id = s.job_id
    where s.to_status = 'queued' and o.outcome = 'ok'
   having count(*) > 0;

  perform _transition(p_now, array_agg((s.job_id, 'dead_letter', null, null, null, null, null,
                                        s.reason, s.error, null, null, null, null, null)::_step))
     from unnest(p_steps) s
    where s.to_status = 'dead_letter' and s.job_id = any (v_ok)
   having count(*) > 0;

  return query
  select o.job_id, o.outcome from unnest(v_ids, v_outcomes) as o (job_id, outcome);
end;
$$;

comment on function euterpe._end_or_requeue is
  'Takes jobs out of the running states: back to the line, to failed, or to dead_letter.';
revoke execute on function euterpe._end_or_requeue from public;
