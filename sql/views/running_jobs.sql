-- running_jobs: what workers have in hand.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    up to 20,000 rows of leases, one job looked up for each; waits for nobody and locks nothing
-- offset 0 keeps it one look-up per row: a planner without statistics may otherwise read the whole table.
create or replace view euterpe.running_jobs as
select j.job_id,
       j.requester_id                                                          as who,
       j.status || case when j.lease_expires_at < euterpe._now() then ', lapsed'
                        else coalesce(' ' || (j.progress ->> 'percent') || '%', '') end      as doing,
       j.worker_id                                                             as worker
  from (select distinct l.job_id
          from (select x.job_id from euterpe.leases x where x.sequence = 0 limit 20000) l) l
 cross join lateral (select i.* from euterpe.inbox_jobs i where i.job_id = l.job_id offset 0) j
 where j.worker_id is not null
 order by j.job_id;

comment on view euterpe.running_jobs is
  'What workers have in hand. Cost: one look-up per lease, at most 20,000. explain_job_v1 says more of one of them.';
comment on column euterpe.running_jobs.job_id is 'The job.';
comment on column euterpe.running_jobs.who is 'Whose job it is.';
comment on column euterpe.running_jobs.doing is
  'Phase, and how much of it is done; lapsed: its worker was not heard of in time, the next tick takes it back.';
comment on column euterpe.running_jobs.worker is 'Who has it, as in live_workers.';
