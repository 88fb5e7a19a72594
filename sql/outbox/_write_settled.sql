-- _write_settled: write down attempts, and what they make of their events and jobs.
--
--   caller  settle_events_v1, which holds the locks of the jobs and events and has decided
--   writes  outbox_attempts, job_outbox_events, inbox_jobs.callback_trouble
--   see     design §4.5
--
-- An event that is given up because of its endpoint marks its job: later events get one attempt each, until one
-- arrives. 410 ends the job's callbacks: what waits is given up with it, and nothing more is sent.
create or replace function euterpe._write_settled(
  p_now       timestamptz,
  p_worker_id text,
  p_settled   euterpe._settled[]
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ids  uuid[] := array(select distinct s.job_id from unnest(p_settled) s);
  v_gone uuid[] := array(select distinct s.job_id from unnest(p_settled) s where s.policy = 'end_callbacks');
begin
  insert into outbox_attempts
         (job_id, sequence, attempt, worker_id, started_at, duration_ms, http_status, error_class, answer)
  select s.job_id, s.sequence, e.attempt_count + 1, p_worker_id, p_now - s.duration_ms * interval '1 millisecond',
         s.duration_ms, s.http_status, s.error_class, s.answer
    from unnest(p_settled) s
    join job_outbox_events e on e.job_id = any (v_ids) and e.job_id = s.job_id and e.sequence = s.sequence;

  update job_outbox_events e
     set status             = s.to_status,
         attempt_count      = e.attempt_count + 1,
         unstarted_expiries = 0,
         worker_id          = null,
         lease_expires_at   = null,
         heartbeat_at       = null,
         claim_token        = null,
         last_error         = case when s.error_class is not null then
                                jsonb_build_object('class', s.error_class, 'http_status', s.http_status,
                                                   'attempt', e.attempt_count + 1, 'occurred_at', _utc(p_now)) end,
         finished_at        = case when s.to_status <> 'waiting' then p_now end
    from unnest(p_settled) s
   where e.job_id = any (v_ids)
     and e.job_id = s.job_id
     and e.sequence = s.sequence;

  update inbox_jobs j
     set callback_trouble = t.trouble
    from (select s.job_id,
                 case when bool_or(s.policy = 'end_callbacks') then 'gone'
                      when bool_or(s.to_status = 'dead_letter' and s.policy = 'retry') then 'failing' end as trouble,
                 bool_or(s.to_status = 'delivered') as has_arrived
            from unnest(p_settled) s
           where s.to_status <> 'waiting'
           group by s.job_id) t
   where j.job_id = any (v_ids)
     and j.job_id = t.job_id
     and (t.trouble is not null or t.has_arrived)
     and j.callback_trouble is distinct from t.trouble
     and j.callback_trouble is distinct from 'gone';

  if cardinality(v_gone) > 0 then
    update job_outbox_events e
       set status      = 'dead_letter',
           last_error  = jsonb_build_object('class', 'gone', 'occurred_at', _utc(p_now)),
           finished_at = p_now
     where e.job_id = any (v_gone)
       and e.status = 'waiting'
       and not exists (select from unnest(p_settled) s where s.job_id = e.job_id and s.sequence = e.sequence);
  end if;
end;
$$;

comment on function euterpe._write_settled is 'Writes down delivery attempts, and what they make of their events and jobs.';
revoke execute on function euterpe._write_settled from public;
