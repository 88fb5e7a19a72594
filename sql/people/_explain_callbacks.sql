-- _explain_callbacks: how the webhooks of a job stand, in a sentence.
--
--   caller  explain_job_v1
--   cost    the events of one job
create or replace function euterpe._explain_callbacks(
  p_now timestamptz,
  p_job euterpe.inbox_jobs
)
returns text
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_waiting bigint;
  v_dead    bigint;
  v_sent    bigint;
  v_head    job_outbox_events%rowtype;
  v_circuit text;
begin
  if p_job.event_filter is null then
    return 'no webhook';
  end if;
  select count(*) filter (where e.status = 'waiting'), count(*) filter (where e.status = 'dead_letter'),
         count(*) filter (where e.status = 'delivered')
    into v_waiting, v_dead, v_sent
    from job_outbox_events e
   where e.job_id = p_job.job_id;
  if p_job.head_sequence is null then
    return format('%s delivered', v_sent)
           || case when v_dead > 0 then format(', %s given up', v_dead) else '' end
           || case when p_job.callback_trouble = 'gone' then '; the endpoint answered 410, nothing more is sent' else '' end;
  end if;

  select e.* into strict v_head
    from job_outbox_events e where e.job_id = p_job.job_id and e.sequence = p_job.head_sequence;
  select c.state into v_circuit
    from endpoint_circuits c
   where c.requester_id = p_job.requester_id and c.origin = v_head.callback_origin and c.state <> 'closed';
  return format('event %s %s', v_head.sequence,
                case when v_head.status = 'claimed' then 'is being delivered by ' || v_head.worker_id
                     when v_head.run_at > p_now then 'is tried again in ' || _ago(v_head.run_at - p_now)
                     else 'is in line' end)
         || case when v_head.attempt_count > 0
                 then format(' (%s attempts, last: %s)', v_head.attempt_count, v_head.last_error ->> 'class')
                 -- Handed back untried: a key that worker does not have, a host at its cap.
                 when v_head.last_error is not null and v_head.status <> 'claimed'
                 then format(' (%s)', v_head.last_error ->> 'class') else '' end
         || case when v_circuit is not null then format('; %s does not answer', v_head.callback_origin) else '' end
         || case when v_waiting > 0 then format('; %s wait behind it', v_waiting) else '' end
         || case when v_dead > 0 then format('; %s given up', v_dead) else '' end;
end;
$$;

comment on function euterpe._explain_callbacks is 'How the webhooks of a job stand, in a sentence.';
revoke execute on function euterpe._explain_callbacks from public;
