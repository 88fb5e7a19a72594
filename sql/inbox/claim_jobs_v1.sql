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
-- (the job was cancelled or moved since) and is deleted when met; that is why the scan may be refilled.
--
-- Why materialized CTEs: on a table without statistics the planner may otherwise run the limited, locking
-- subquery once per outer row and claim more than it was asked to.
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
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now     timestamptz := _now();
  v_queue   queues%rowtype;
  v_lease   timestamptz;
  v_key     bigint;
  v_seq     bigint := -1;
  v_ctids   tid[];
  v_seqs    bigint[];
  v_jobs    uuid[];
  v_gone    tid[];
  v_mine    uuid[];
  v_claimed uuid[] := '{}';
  v_taken   bigint;
  v_filed   timestamptz;
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

  for v_round in 1 .. 5 loop
    with picked as materialized (
      select r.ctid as at, r.key, r.seq, r.job_id
        from ready r
       where r.queue_id = v_queue.queue_id
         and r.shard = 0
         and r.key >= v_key
         and (r.key, r.seq) > (v_key, v_seq)
       order by r.key, r.seq
       limit p_limit - cardinality(v_claimed)
         for update skip locked
    )
    select array_agg(p.at order by p.key, p.seq), array_agg(p.seq order by p.key, p.seq),
           array_agg(p.job_id order by p.key, p.seq),
           max(p.key), (array_agg(p.seq order by p.key desc, p.seq desc))[1]
      into v_ctids, v_seqs, v_jobs, v_key, v_seq
      from picked p;
    exit when v_jobs is null;

    with locked as materialized (
      select j.job_id, j.line_seq
        from inbox_jobs j
       where j.job_id = any (v_jobs)
         for no key update skip locked
    )
    select array_agg(e.job_id order by e.nth)
      into v_mine
      from unnest(v_jobs, v_seqs) with ordinality as e (job_id, seq, nth)
      join locked l on l.job_id = e.job_id and l.line_seq = e.seq;

    -- What is ours leaves the line, and so does what is certainly litter. What somebody else holds stays.
    v_gone := array(
      select e.at
        from unnest(v_ctids, v_seqs, v_jobs) as e (at, seq, job_id)
        left join (select i.job_id, i.line_seq from inbox_jobs i where i.job_id = any (v_jobs)) j
          on j.job_id = e.job_id
       where e.job_id = any (v_mine) or j.line_seq is distinct from e.seq);
    delete from ready r where r.ctid = any (v_gone);

    if v_mine is not null then
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
  select j.job_id, j.requester_id, j.claim_version, j.claim_token, j.lease_expires_at, j.attempt_count,
         j.max_attempts, j.credential_version, j.external_id, r.request
    from inbox_jobs j
    join job_requests r on r.job_id = any (v_claimed) and r.job_id = j.job_id
   where j.job_id = any (v_claimed)
   order by array_position(v_claimed, j.job_id);
end;
$$;

comment on function euterpe.claim_jobs_v1 is
  'Hands up to p_limit ready jobs to one worker, each under a new claim_version and claim_token.';
revoke execute on function euterpe.claim_jobs_v1 from public;
