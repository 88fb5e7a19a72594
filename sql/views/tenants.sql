-- tenants: who asks for work, and how much of it is open.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    up to 1,001 entries of an index of unfinished jobs per requester
-- between x and x, ordered by both: so that only the index of unfinished jobs has the order. With = the planner may walk
-- the primary key instead, past everybody's finished jobs.
create or replace view euterpe.tenants as
select r.requester_id                                                          as who,
       case when r.disabled_at is null then 'open' else 'disabled' end         as state,
       r.weight,
       r.max_priority                                                          as max_prio,
       case when o.count > 1000 then '1000+' else o.count::text end            as unfinished,
       r.max_open_jobs                                                         as most,
       euterpe._ago(euterpe._now() - o.oldest)                                 as oldest
  from euterpe.requesters r
 cross join lateral (
       select count(*) as count, min(j.created_at) as oldest
         from (select i.created_at
                 from euterpe.inbox_jobs i
                where i.requester_id between r.requester_id and r.requester_id and i.finished_at is null
                order by i.requester_id, i.job_id
                limit 1001) j) o
 order by o.count desc, r.requester_id;

comment on view euterpe.tenants is
  'Who asks for work, and how much of it is open. Cost: at most 1,001 index entries per requester.';
comment on column euterpe.tenants.who is 'requester_id.';
comment on column euterpe.tenants.state is 'open, or disabled: it may not ask; its running jobs go on.';
comment on column euterpe.tenants.weight is 'Share of a line against other requesters.';
comment on column euterpe.tenants.max_prio is 'Higher priorities are lowered to this.';
comment on column euterpe.tenants.unfinished is 'Jobs queued or running; counted up to 1,000.';
comment on column euterpe.tenants.most is 'How many it may have unfinished at once.';
comment on column euterpe.tenants.oldest is 'Age of the oldest of them.';
