-- stuck_jobs: jobs that do not move as they should, and why.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    up to 20,000 rows of leases and the first 100 entries of each line, one job looked up for each
-- offset 0: see running_jobs.
create or replace view euterpe.stuck_jobs as
with clock as materialized (
  select euterpe._now() as now
), held as materialized (
  select j.job_id, j.status, j.lease_expires_at, j.updated_at, j.unstarted_expiries,
         (j.progress ->> 'updated_at')::timestamptz as progressed_at
    from (select distinct l.job_id
            from (select x.job_id from euterpe.leases x where x.sequence = 0 limit 20000) l) l
   cross join lateral (select i.* from euterpe.inbox_jobs i where i.job_id = l.job_id offset 0) j
   where j.worker_id is not null
), heads as materialized (
  select r.job_id
    from euterpe.queues q
   cross join lateral (
         select r.job_id
           from euterpe.ready r
          where r.queue_id = q.queue_id and r.shard = 0 and r.sequence = 0
          order by r.key, r.seq
          limit 100) r
   where q.holds = 'jobs'
), overdue as materialized (
  select d.job_id, d.run_at
    from euterpe.queues q
   cross join lateral (
         select d.job_id, d.run_at
           from euterpe.delayed d
          where d.queue_id = q.queue_id and d.sequence = 0
          order by d.run_at
          limit 100) d
   where q.holds = 'jobs'
)
select h.job_id, 'lease lapsed ' || euterpe._ago(c.now - h.lease_expires_at) || ' ago, not taken back' as why
  from held h, clock c
 where h.lease_expires_at < c.now - interval '1 minute'
union all
select h.job_id, h.status || ' ' || euterpe._ago(c.now - h.updated_at) || ', silent '
                 || euterpe._ago(c.now - coalesce(h.progressed_at, h.updated_at))
  from held h, clock c
 where h.lease_expires_at >= c.now - interval '1 minute'
   and coalesce(h.progressed_at, h.updated_at) < c.now - interval '30 minutes'
union all
select h.job_id, 'claimed ' || h.unstarted_expiries + 1 || ' times, never started'
  from held h
 where h.unstarted_expiries >= 3
union all
select j.job_id, 'at the head of its line for ' || euterpe._ago(c.now - greatest(j.updated_at, j.run_at))
  from heads h
 cross join lateral (select i.* from euterpe.inbox_jobs i where i.job_id = h.job_id offset 0) j
 cross join clock c
 where j.status = 'queued' and greatest(j.updated_at, j.run_at) < c.now - interval '1 hour'
union all
select j.job_id, 'due ' || euterpe._ago(c.now - o.run_at) || ' ago, still delayed'
  from overdue o
 cross join lateral (select i.* from euterpe.inbox_jobs i where i.job_id = o.job_id offset 0) j
 cross join clock c
 where j.status = 'queued' and o.run_at < c.now - interval '1 minute';

comment on view euterpe.stuck_jobs is
  'Jobs that do not move as they should, and why. Cost: one look-up per lease, at most 20,000, and 200 per queue.';
comment on column euterpe.stuck_jobs.job_id is 'The job; explain_job_v1 says more.';
comment on column euterpe.stuck_jobs.why is 'What is odd about it.';
