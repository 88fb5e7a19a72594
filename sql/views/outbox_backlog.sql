-- outbox_backlog: which endpoints have webhooks waiting, and whether they answer.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    up to 10,000 entries of each line of events, one event looked up for each
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
  join euterpe.job_outbox_events o on o.job_id = e.job_id and o.sequence = e.sequence and o.status = 'ready'
  left join euterpe.endpoint_circuits c
    on c.requester_id = o.requester_id and c.origin = o.callback_origin
 group by o.requester_id, o.callback_origin
 order by count(*) desc;

comment on view euterpe.outbox_backlog is
  'Webhooks waiting, by endpoint. Cost: one look-up per entry, at most 10,000 per line. Later events of a job wait behind these.';
comment on column euterpe.outbox_backlog.who is 'Whose endpoint.';
comment on column euterpe.outbox_backlog.endpoint is 'Scheme, host and port; the rest of the url is sealed.';
comment on column euterpe.outbox_backlog.now is 'May be delivered now.';
comment on column euterpe.outbox_backlog.later is 'Wait for their next attempt.';
comment on column euterpe.outbox_backlog.oldest is 'Age of the oldest of them.';
comment on column euterpe.outbox_backlog.circuit is 'closed: deliveries flow. open: it does not answer, they wait. half_open: one is tried.';
