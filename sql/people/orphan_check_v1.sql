-- orphan_check_v1: everything that must agree, looked at whole; a healthy queue answers nothing.
--
--   caller  a DBA after a restore, a crash or a doubt; every test at its end
--   writes  nothing
--   see     contract §1, §3, §4, §8, §9, §10
--
-- Cost: reads every job and every event. On a large system run it on a replica or a restored copy.
create or replace function euterpe.orphan_check_v1()
returns table (
  trouble text,
  job_id  uuid,
  detail  text
)
language sql
stable
security definer
set search_path = euterpe, pg_temp
as $$
  with chain as (
    select e.job_id, e.sequence, e.from_status, e.to_status, e.claim_version_then,
           lag(e.to_status) over w as before_status,
           lag(e.claim_version_then) over w as before_version,
           row_number() over w as nth,
           e.sequence = max(e.sequence) over (partition by e.job_id) as is_last
      from job_outbox_events e
    window w as (partition by e.job_id order by e.sequence)
  )
  select 'events have a gap', c.job_id, format('sequence %s is number %s', c.sequence, c.nth)
    from chain c
   where c.sequence <> c.nth
  union all
  select 'events are not chained', c.job_id,
         format('sequence %s leaves %s, but the job was %s', c.sequence, c.from_status, c.before_status)
    from chain c
   where c.from_status is distinct from c.before_status
  union all
  select 'event of a step that is not in job_transitions', c.job_id,
         format('sequence %s: %s -> %s', c.sequence, c.from_status, c.to_status)
    from chain c
   where not case when c.nth = 1 then c.from_status is null and c.to_status = 'queued'
                  else exists (select from job_transitions t
                                where t.from_status = c.from_status and t.to_status = c.to_status) end
  union all
  select 'claim_version does not rise by one per claim', c.job_id,
         format('sequence %s: %s after %s', c.sequence, c.claim_version_then, c.before_version)
    from chain c
   where c.claim_version_then <> coalesce(c.before_version, 0) + (c.to_status = 'claimed')::integer
  union all
  select 'event without a job', c.job_id, format('sequence %s', c.sequence)
    from chain c
   where not exists (select from inbox_jobs j where j.job_id = c.job_id)
  union all
  select 'job and last event disagree', j.job_id,
         format('status %s, last_sequence %s, claim_version %s; event %s to %s under %s',
                j.status, j.last_sequence, j.claim_version, c.sequence, c.to_status, c.claim_version_then)
    from inbox_jobs j
    left join chain c on c.job_id = j.job_id and c.is_last
   where (j.status, j.last_sequence, j.claim_version)
         is distinct from (c.to_status, c.sequence, c.claim_version_then)
  union all
  select 'owned without worker, lease or token', j.job_id, j.status
    from inbox_jobs j
   where num_nonnulls(j.worker_id, j.lease_expires_at, j.heartbeat_at, j.claim_token)
         <> case when j.status in ('claimed', 'fetching', 'processing', 'uploading') then 4 else 0 end
  union all
  select 'owned, but nobody will look at its lease', j.job_id, j.status
    from inbox_jobs j
   where j.lease_expires_at is not null
     and not exists (select from leases l
                      where l.queue_id = j.queue_id and l.job_id = j.job_id and l.sequence = 0)
  union all
  select 'queued, but not exactly once in a line', j.job_id, format('line_seq %s, %s entries', j.line_seq, n.entries)
    from inbox_jobs j
    left join (select f.queue_id, f.job_id, f.sequence, f.seq, count(*) as entries
                 from (select r.queue_id, r.job_id, r.sequence, r.seq from ready r
                       union all
                       select d.queue_id, d.job_id, d.sequence, d.seq from delayed d) f
                group by f.queue_id, f.job_id, f.sequence, f.seq) n
      on n.queue_id = j.queue_id and n.job_id = j.job_id and n.sequence = 0 and n.seq = j.line_seq
   where j.status = 'queued' and n.entries is distinct from 1
  union all
  select 'event owned without worker, lease or token', e.job_id, format('sequence %s: %s', e.sequence, e.status)
    from job_outbox_events e
   where num_nonnulls(e.worker_id, e.lease_expires_at, e.heartbeat_at, e.claim_token)
         <> case when e.status = 'claimed' then 4 else 0 end
  union all
  select 'event owned, but nobody will look at its lease', e.job_id, format('sequence %s', e.sequence)
    from job_outbox_events e
   where e.lease_expires_at is not null
     and not exists (select from leases l
                      where l.queue_id = e.queue_id and l.job_id = e.job_id and l.sequence = e.sequence)
  union all
  select 'event ready, but not exactly once in a line', e.job_id,
         format('sequence %s, line_seq %s, %s entries', e.sequence, e.line_seq, n.entries)
    from job_outbox_events e
    left join (select f.queue_id, f.job_id, f.sequence, f.seq, count(*) as entries
                 from (select r.queue_id, r.job_id, r.sequence, r.seq from ready r
                       union all
                       select d.queue_id, d.job_id, d.sequence, d.seq from delayed d) f
                group by f.queue_id, f.job_id, f.sequence, f.seq) n
      on n.queue_id = e.queue_id and n.job_id = e.job_id and n.sequence = e.sequence and n.seq = e.line_seq
   where e.status = 'ready' and n.entries is distinct from 1
  union all
  select 'event stranded: it waits, and nothing is on its way before it', e.job_id, format('sequence %s', e.sequence)
    from job_outbox_events e
    join inbox_jobs j on j.job_id = e.job_id
   where e.status = 'waiting' and (j.head_sequence is null or j.head_sequence >= e.sequence)
  union all
  select 'head of the callbacks is not on its way', j.job_id, format('head_sequence %s is %s', j.head_sequence, e.status)
    from inbox_jobs j
    left join job_outbox_events e on e.job_id = j.job_id and e.sequence = j.head_sequence
   where j.head_sequence is not null and coalesce(e.status, 'missing') not in ('ready', 'claimed')
  union all
  select 'delivery attempts are not numbered without gaps', e.job_id,
         format('sequence %s: %s attempts, %s written', e.sequence, e.attempt_count, count(a.attempt))
    from job_outbox_events e
    left join outbox_attempts a on a.job_id = e.job_id and a.sequence = e.sequence
   group by e.job_id, e.sequence, e.attempt_count
  having count(a.attempt) <> e.attempt_count or coalesce(max(a.attempt), 0) <> e.attempt_count
  union all
  select 'storage credentials of a job that has ended', j.job_id, j.status
    from inbox_jobs j
    join job_secrets s on s.job_id = j.job_id and s.purpose = 'storage'
   where j.ended_as is not null
  union all
  select 'redriven job and its successor do not name each other', j.job_id, j.redriven_as::text
    from inbox_jobs j
    left join inbox_jobs n on n.job_id = j.redriven_as
   where j.redriven_as is not null and n.redrive_of is distinct from j.job_id
     and not _is_pruned(_now(), j.requester_id, j.redriven_as)
  union all
  select 'job without its request', j.job_id, null
    from inbox_jobs j
   where not exists (select from job_requests r where r.job_id = j.job_id)
  union all
  select 'succeeded without results, or results without success', coalesce(j.job_id, r.job_id), j.status
    from (select i.job_id, i.status from inbox_jobs i where i.status = 'succeeded') j
    full join job_results r on r.job_id = j.job_id
   where j.job_id is null or r.job_id is null
  union all
  select 'idempotency key without its job', k.job_id, format('%s of %s', k.idempotency_key, k.requester_id)
    from idempotency_keys k
   where not exists (select from inbox_jobs j where j.job_id = k.job_id and j.requester_id = k.requester_id)
     and not _is_pruned(_now(), k.requester_id, k.job_id)
$$;

comment on function euterpe.orphan_check_v1 is
  'Everything that must agree between jobs, events, lines, leases and keys; a healthy queue answers no rows. Reads everything.';
revoke execute on function euterpe.orphan_check_v1 from public;
