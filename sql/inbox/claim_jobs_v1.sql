-- claim_jobs_v1: hand up to p_limit ready jobs to one worker, each behind a new fence.
--
--   caller  euterpe-transcode
--   writes  ready (deletes), inbox_jobs (owner, lease, claim_version + 1, claim_token), leases
--   emits   one claimed event per job
--   raises  22023  p_limit, p_lease_seconds or p_worker_id out of range
--           UT006  no such queue
--           UT011  not read committed
--   see     contract §3, §4; docs/ownership.md, docs/line.md
--
-- Nobody waits for a lock here, so nobody deadlocks: entries and jobs that others hold are passed over, and
-- an entry whose job is held stays in the line. An entry whose seq is no longer the job's line_seq is litter
-- (the job was cancelled or moved since) and is deleted when met; that is why the scan may be refilled: five times, and
-- five times more whenever litter was met, so that a worker with one free hand is not told for minutes that a line of
-- which somebody cancelled the first thousands is empty.
--
-- Why entries are picked into arrays first: on a table without statistics the planner may otherwise run the
-- limited, locking subquery once per outer row and claim more than it was asked to.
-- Why delete by ctid: the rows are locked and ready is never updated, so a ctid stays true; a join could
-- turn into a scan of the whole line.
create or replace function euterpe.claim_jobs_v1(
  p_queue         text,
  p_worker_id     text,
  p_limit         integer,
  p_lease_seconds integer default null
)
returns table (
  job_id             uuid,
  requester_id       text,
  claim_version      bigint,
  claim_token        uuid,
  lease_expires_at   timestamptz,
  attempt_count      integer,
  max_attempts       integer,
  credential_version integer,
  external_id        text,
  request            jsonb
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_now      timestamptz := _now();
  v_queue    queues%rowtype;
  v_lease    timestamptz;
  v_key      bigint;
  v_seq      bigint;
  v_ctids    tid[];
  v_seqs     bigint[];
  v_jobs     uuid[];
  v_verdicts text[];
  v_mine     uuid[];
  v_claimed  uuid[] := '{}'::uuid[];
  v_taken    bigint;
  v_filed    timestamptz;
  v_rounds   integer := 5;
begin
  perform _insist_read_committed();
  if coalesce(p_limit, 0) not between 1 and 1000 or p_lease_seconds not between 5 and 3600
     or coalesce(length(p_worker_id), 0) not between 1 and 300 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('claim_jobs_v1: p_limit=%s must be in 1..1000, p_lease_seconds=%s in 5..3600 '
                       'and p_worker_id have 1 to 300 characters', p_limit, p_lease_seconds);
  end if;
  select q.* into v_queue from queues q where q.name = p_queue and q.holds = 'jobs';
  if not found then
    raise exception using errcode = 'UT006', message = format('there is no queue %s for jobs', p_queue);
  end if;

  perform _tick_if_due(v_now, v_queue.queue_id, v_queue.holds, v_queue.lease_seconds);
  if v_queue.paused_at is not null then
    return;
  end if;

  v_lease := v_now + make_interval(secs => coalesce(p_lease_seconds, v_queue.lease_seconds));
  v_key   := pg_sequence_last_value(('euterpe_line.q' || v_queue.queue_id || '_floor')::regclass);
  v_seq   := pg_sequence_last_value(('euterpe_line.q' || v_queue.queue_id || '_floor_seq')::regclass) - 1;

  for v_round in 1 .. 200 loop
    exit when v_round > v_rounds;
    select array_agg(p.at), array_agg(p.seq), array_agg(p.job_id), max(p.key)
      into v_ctids, v_seqs, v_jobs, v_key
      from _pick_entries(v_queue.queue_id, v_key, v_seq, p_limit - cardinality(v_claimed)) p;
    exit when v_jobs is null;
    v_seq := v_seqs[cardinality(v_seqs)];

    -- What is ours leaves the line, and so does what is litter. What somebody else holds stays.
    v_verdicts := _sort_entries(v_jobs, v_seqs);
    delete from ready r
     where r.ctid = any (array(
             select e.at from unnest(v_ctids, v_verdicts) as e (at, verdict) where e.verdict <> 'held'));
    v_rounds := greatest(v_rounds, case when 'litter' = any (v_verdicts) then v_round + 5
                                        when 'held' = any (v_verdicts) then 20 end);

    v_mine := array(
      select e.job_id
        from unnest(v_jobs, v_verdicts) with ordinality as e (job_id, verdict, nth)
       where e.verdict = 'mine'
       order by e.nth);
    if cardinality(v_mine) > 0 then
      v_claimed := v_claimed || v_mine;
      v_taken   := v_key;
    end if;
    exit when cardinality(v_claimed) >= p_limit;
  end loop;

  if cardinality(v_claimed) = 0 then
    return;
  end if;

  perform _transition(v_now, array(
    select (c.job_id, 'claimed', null, null, p_worker_id, gen_random_uuid(), v_lease,
            null, null, null, null, null, null, null)::_step
      from unnest(v_claimed) as c (job_id)));

  -- The clock again, now that this transaction has an xid: what _safe_point relies on.
  v_filed := _now();
  insert into leases (queue_id, due_at, job_id, sequence)
  select v_queue.queue_id, greatest(v_lease, v_filed), c.job_id, 0
    from unnest(v_claimed) as c (job_id);

  perform setval(('euterpe_line.q' || v_queue.queue_id || '_taken')::regclass, v_taken);

  return query
  select c.job_id, c.requester_id, c.claim_version, c.claim_token, c.lease_expires_at, c.attempt_count,
         c.max_attempts, c.credential_version, c.external_id, c.request
    from _claimed_jobs(v_claimed) c;
end;
$$;

comment on function euterpe.claim_jobs_v1 is
  'Hands up to p_limit ready jobs to one worker, each under a new claim_version and claim_token.';
revoke execute on function euterpe.claim_jobs_v1 from public;
