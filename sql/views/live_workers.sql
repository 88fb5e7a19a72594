-- live_workers: which processes are there, and what they have in hand.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    the workers, and up to 20,000 rows of leases, one job or event looked up for each
-- offset 0: see running_jobs.
create or replace view euterpe.live_workers as
with entries as materialized (
  select distinct x.job_id, x.sequence
    from (select l.job_id, l.sequence from euterpe.leases l limit 20000) x
), held as materialized (
  select i.worker_id, count(*) as in_hand
    from (select j.worker_id
            from entries e
           cross join lateral (select i.* from euterpe.inbox_jobs i where i.job_id = e.job_id offset 0) j
           where e.sequence = 0
           union all
          select o.worker_id
            from entries e
           cross join lateral (
                 select i.* from euterpe.job_outbox_events i
                  where i.job_id = e.job_id and i.sequence = e.sequence offset 0) o
           where e.sequence > 0) i
   where i.worker_id is not null
   group by i.worker_id
)
select coalesce(w.worker_id, h.worker_id)                as worker,
       coalesce(w.kind, 'unknown')                       as kind,
       w.release,
       coalesce(h.in_hand, 0)                            as in_hand,
       euterpe._ago(euterpe._now() - w.started_at)       as up,
       euterpe._ago(euterpe._now() - w.seen_at)          as seen
  from (select x.* from euterpe.workers x where x.stopped_at is null) w
  full join held h on h.worker_id = w.worker_id
 order by 2, 1;

comment on view euterpe.live_workers is
  'Which processes are there, and what they have in hand. Cost: one look-up per lease, at most 20,000.';
comment on column euterpe.live_workers.worker is 'Pod name, # and eight digits of its boot id.';
comment on column euterpe.live_workers.kind is
  'api, transcode, webhook, other; unknown: it holds something and is not there any more, or never said that it was.';
comment on column euterpe.live_workers.release is 'Release it runs.';
comment on column euterpe.live_workers.in_hand is 'Jobs or events it holds.';
comment on column euterpe.live_workers.up is 'Since it started.';
comment on column euterpe.live_workers.seen is 'Since it last said that it is there.';
