-- queue_overview: how full each line is, and how old its head.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    the newest sample of each queue: a few buffers, whatever the depth
create or replace view euterpe.queue_overview as
select q.name                                                                  as queue,
       case when q.paused_at is null then 'open' else 'paused' end             as state,
       s.ready_count                                                           as ready,
       s.delayed_count                                                         as delayed,
       s.leased_count                                                          as leased,
       euterpe._ago(s.oldest_ready_age_ms * interval '1 millisecond'
                    + (euterpe._now() - s.sampled_at))                         as oldest,
       euterpe._ago(euterpe._now() - s.sampled_at)                             as as_of
  from euterpe.queues q
  left join lateral (
       select s.ready_count, s.delayed_count, s.leased_count, s.oldest_ready_age_ms, s.sampled_at
         from euterpe.queue_samples s
        where s.queue_id = q.queue_id
        order by s.sampled_at desc
        limit 1) s on true
 order by q.queue_id;

comment on view euterpe.queue_overview is
  'How full each line is, sampled every ten seconds. Cost: a look-up per queue. See pause_queue_v1, resume_queue_v1.';
comment on column euterpe.queue_overview.queue is 'Its name.';
comment on column euterpe.queue_overview.state is 'open, or paused: it hands out nothing.';
comment on column euterpe.queue_overview.ready is
  'Entries that may be claimed now; counted up to 100,000. May exceed the jobs: what moved or was cancelled leaves one behind.';
comment on column euterpe.queue_overview.delayed is 'Wait for their time: retries and schedules; counted up to 100,000.';
comment on column euterpe.queue_overview.leased is 'In the hands of workers, or were until a moment ago; counted up to 100,000.';
comment on column euterpe.queue_overview.oldest is 'Age of the job at the head of the line.';
comment on column euterpe.queue_overview.as_of is 'Age of these numbers; when old, nobody runs upkeep_v1.';
