-- _file_events: put events in their line, now or for later.
--
--   caller  _transition, _enqueue_jobs, _advance_heads, settle_events_v1, release_events_v1, redeliver_events_v1,
--           _reclaim_events, after_restore_v1; the events are waiting, and nobody else can touch them
--   writes  job_outbox_events (ready, its place), ready or delayed
--   see     docs/outbox.md, docs/line.md
--
-- p_is_fresh: they are new here, or somebody asked for them again: a new budget in the line of first attempts. One
-- attempt only, when the job's callbacks are failing. Otherwise they stay in the line given, with what is left.
-- Keys of two lines are not comparable: an event that changes the line gets a new fair key, one that comes back keeps
-- its own. One that was asked for again is charged again: else who asks for thousands would stand before everybody.
-- An event whose circuit is not closed is not put in front of the claims at all: it waits for the probe.
-- One that was told to come later (429) is not named by its endpoint: it does not move up when a circuit closes.
create or replace function euterpe._file_events(
  p_job_ids   uuid[],
  p_sequences integer[],
  p_queue_ids smallint[],
  p_run_ats   timestamptz[],
  p_is_fresh  boolean
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_first     queues%rowtype;
  v_jobs      uuid[];
  v_sequences integer[];
  v_queues    smallint[];
  v_keys      bigint[];
  v_seqs      bigint[];
  v_run_ats   timestamptz[];
  v_budgets   integer[];
  v_endpoints text[];
begin
  select q.* into strict v_first from queues q where q.name = 'webhook';

  select array_agg(f.job_id), array_agg(f.sequence), array_agg(f.queue_id),
         array_agg(case when not p_is_fresh and f.queue_id = f.old_queue_id then f.line_key
                        else (_fair_keys(f.queue_id, f.requester_no, array[100]))[1] end),
         array_agg(nextval('euterpe_line.seq')),
         array_agg(f.run_at), array_agg(f.budget), array_agg(f.endpoint)
    into v_jobs, v_sequences, v_queues, v_keys, v_seqs, v_run_ats, v_budgets, v_endpoints
    from (select e.job_id, e.sequence, e.queue_id as old_queue_id, e.line_key, r.requester_no,
                 case when e.last_error ->> 'class' is distinct from 'rate_limited'
                      then e.requester_id || ' ' || e.callback_origin end as endpoint,
                 case when p_is_fresh then v_first.queue_id else s.queue_id end as queue_id,
                 greatest(s.run_at, c.probe_at) as run_at,
                 case when p_is_fresh
                      then least(e.attempt_count + case when j.callback_trouble = 'failing' then 1
                                                        else v_first.max_attempts end, 1000)
                      else e.max_attempts end as budget
            from unnest(p_job_ids, p_sequences, p_queue_ids, p_run_ats) with ordinality
                 as s (job_id, sequence, queue_id, run_at, nth)
            join job_outbox_events e
              on e.job_id = any (p_job_ids) and e.job_id = s.job_id and e.sequence = s.sequence
            join inbox_jobs j on j.job_id = any (p_job_ids) and j.job_id = s.job_id
            join requesters r on r.requester_id = e.requester_id
            left join endpoint_circuits c
              on c.requester_id = e.requester_id and c.origin = e.callback_origin and c.state <> 'closed'
           order by s.nth) f;

  update job_outbox_events e
     set status          = 'ready',
         queue_id        = f.queue_id,
         line_key        = f.line_key,
         line_seq        = f.line_seq,
         run_at          = f.run_at,
         max_attempts    = f.budget,
         attempts_before = case when p_is_fresh then e.attempt_count else e.attempts_before end
    from unnest(v_jobs, v_sequences, v_queues, v_keys, v_seqs, v_run_ats, v_budgets)
         as f (job_id, sequence, queue_id, line_key, line_seq, run_at, budget)
   where e.job_id = any (p_job_ids)
     and e.job_id = f.job_id
     and e.sequence = f.sequence;

  perform _put_in_line(v_queues, v_jobs, v_sequences, v_keys, v_seqs, v_run_ats, v_endpoints);
end;
$$;

comment on function euterpe._file_events is 'Puts events in their line, now or for later.';
revoke execute on function euterpe._file_events from public;
