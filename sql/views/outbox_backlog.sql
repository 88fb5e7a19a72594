-- outbox_backlog: which endpoints have webhooks waiting, and whether they answer.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    up to 10,000 entries of each line of events, one event looked up for each
-- offset 0: see running_jobs.
create or replace view euterpe.outbox_backlog as
with entries as materialized (
  select e.job_id, e.sequence, e.is_delayed
    from euterpe.queues q
   cross join lateral (
         (select r.job_id, r.sequence, false as is_delayed
            from euterpe.ready r
           where r.queue_id = q.queue_id and r.shard = 0
           order by r.key, r.seq
           limit 5000)
         union all
         (select d.job_id, d.sequence, true
            from euterpe.delayed d
           where d.queue_id = q.queue_id
           order by d.run_at
           limit 5000)) e
   where q.holds = 'events'
)
select o.requester_id                                          as who,
       o.callback_origin                                       as endpoint,
       count(*) filter (where not e.is_delayed)                as now,
       count(*) filter (where e.is_delayed)                    as later,
       euterpe._ago(euterpe._now() - min(o.created_at))        as oldest,
       coalesce(max(c.state), 'closed')                        as circuit
  from entries e
 cross join lateral (
       select i.* from euterpe.job_outbox_events i where i.job_id = e.job_id and i.sequence = e.sequence offset 0) o
  left join euterpe.endpoint_circuits c
    on c.requester_id = o.requester_id and c.origin = o.callback_origin
 where o.status = 'ready'
 group by o.requester_id, o.callback_origin
 order by count(*) desc;

comment on view euterpe.outbox_backlog is
  'Webhooks waiting, by endpoint; later events of a job wait behind these. Cost: a look-up per entry, at most 10,000 per line.';
comment on column euterpe.outbox_backlog.who is 'Whose endpoint.';
comment on column euterpe.outbox_backlog.endpoint is 'Scheme, host and port; the rest of the url is sealed.';
comment on column euterpe.outbox_backlog.now is 'May be delivered now.';
comment on column euterpe.outbox_backlog.later is 'Wait for their next attempt.';
comment on column euterpe.outbox_backlog.oldest is 'Age of the oldest of them.';
comment on column euterpe.outbox_backlog.circuit is 'closed: deliveries flow. open: they wait. half_open: one is tried.';
