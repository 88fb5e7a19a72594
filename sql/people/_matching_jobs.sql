-- _matching_jobs: which jobs an operator means, oldest first.
--
--   caller  steer_jobs_v1
--   answers at most p_limit ids
--   cost    the jobs of the time range, by primary key; stops at p_limit
--
-- What can be acted upon follows from the act: unfinished jobs are cancelled, queued ones of another priority
-- prioritised, those that rest as failed retried, dead letters redriven, and those with events given up redelivered.
create or replace function euterpe._matching_jobs(
  p_act          text,
  p_queue        text,
  p_requester_id text,
  p_error_code   text,
  p_status       text,
  p_since        timestamptz,
  p_until        timestamptz,
  p_priority     integer,
  p_limit        integer
)
returns uuid[]
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  -- Within what an id can say, so that any time may be given.
  v_from  uuid     := _id_floor(greatest(p_since, 'epoch'));
  v_to    uuid     := _id_floor(least(p_until, timestamptz '9999-01-01'));
  v_queue smallint := (select q.queue_id from queues q where q.name = p_queue);
begin
  return array(
    select j.job_id
      from inbox_jobs j
     where j.job_id >= v_from and j.job_id < v_to
       and (p_queue is null or j.queue_id = v_queue)
       and (p_requester_id is null or j.requester_id = p_requester_id)
       and (p_error_code is null or j.last_error ->> 'code' = p_error_code)
       and (p_status is null or j.status = p_status)
       and case p_act
             when 'cancel' then j.finished_at is null
             when 'prioritise' then j.status = 'queued' and j.priority <> p_priority
             when 'retry' then j.status = 'failed' and j.attempt_count < j.max_attempts
             when 'redrive' then j.ended_as = 'dead_letter' and j.redriven_as is null
             when 'redeliver' then j.event_filter is not null
                               and exists (select from job_outbox_events e
                                            where e.job_id = j.job_id and e.status = 'dead_letter')
           end
     order by j.job_id
     limit p_limit);
end;
$$;

comment on function euterpe._matching_jobs is 'Which jobs an operator means, oldest first.';
revoke execute on function euterpe._matching_jobs from public;
