-- health_v1: what a DBA should worry about; every row with ok = false is an alarm.
--
--   caller  the view health, monitoring
--   cost    catalog, statistics, sequences, the newest samples and the endpoints in trouble; of jobs, the event of each of
--           the first 100 delayed entries of a line of webhooks
--
-- It names culprits: who holds the oldest snapshot (vacuum cannot clean behind it), which table has most dead rows,
-- which pods call functions that are not loaded. Since when a snapshot is held is only shown to those who may read all
-- statistics; roles.sql grants that to the owner where it can.
create or replace function euterpe.health_v1()
returns table (
  topic text,
  ok    boolean,
  says  text
)
language sql
stable
security definer
set search_path = euterpe, pg_catalog, pg_temp
set timezone = 'UTC'
as $$
  with weeks as (
    select max(to_date(right(c.relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC' + interval '1 week' as until
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'euterpe.inbox_jobs'::regclass
  ), lines as (
    select q.name, q.paused_at,
           pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_strays')::regclass)  as strays,
           pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_virtual')::regclass)
           - pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_ready_safe')::regclass) as safe_lag,
           timestamptz 'epoch' + interval '1 millisecond'
             * pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_tick')::regclass) as ticked_at,
           timestamptz 'epoch' + interval '1 millisecond'
             * pg_sequence_last_value(('euterpe_line.q' || q.queue_id || '_hold')::regclass) as held_until,
           s.ready_count, s.delayed_count, s.leased_count, s.oldest_ready_age_ms, s.sampled_at
      from queues q
      left join lateral (
           select s.ready_count, s.delayed_count, s.leased_count, s.oldest_ready_age_ms, s.sampled_at
             from queue_samples s
            where s.queue_id = q.queue_id
            order by s.sampled_at desc
            limit 1) s on true
  ), snapshots as (
    select format('pid %s, %s, %s', a.pid, coalesce(a.usename, a.backend_type),
                  coalesce(nullif(a.application_name, ''), '-')) as who,
           a.backend_xmin as xmin, a.xact_start as since
      from pg_stat_activity a
     where a.backend_xmin is not null and a.pid <> pg_backend_pid()
     union all
    select format('prepared transaction %s of %s', x.gid, x.owner), x.transaction, x.prepared
      from pg_prepared_xacts x
     union all
    select format('replication slot %s', r.slot_name), r.xmin, null
      from pg_replication_slots r
     where r.xmin is not null
  ), tables as (
    select t.relname, t.n_dead_tup, t.n_live_tup, greatest(t.last_vacuum, t.last_autovacuum) as vacuumed_at
      from pg_stat_all_tables t
     where t.schemaname = 'euterpe'
     order by t.n_dead_tup desc, t.relname
     limit 1
  ), releases as (
    select string_to_array(w.release, '.')::integer[] as release, count(*) as pods
      from workers w
     where w.stopped_at is null and w.release ~ '^[0-9]+(\.[0-9]+)*$'
     group by 1
  ), loaded as (
    select max(string_to_array(f.release, '.')::integer[]) as release, max(f.loaded_at) as at
      from sql_functions f
  ), clock as (
    select _now() as now, clock_timestamp() as wall
  )
  select 'partitions ahead'                                           as topic,
         coalesce(w.until > c.now + interval '2 weeks', false)        as ok,
         coalesce(format('until %s', to_char(w.until at time zone 'UTC', 'YYYY-MM-DD')), 'none: run upkeep_v1') as says
    from weeks w, clock c
  union all
  select 'upkeep',
         coalesce(max(l.sampled_at) between c.now - interval '1 minute' and c.now + interval '1 minute', false),
         coalesce(format('last sample %s ago', _ago(c.now - max(l.sampled_at))), 'has never run')
    from lines l, clock c
   group by c.now
  union all
  select 'oldest snapshot',
         s.who is null or coalesce(c.wall - s.since < interval '10 minutes', age(s.xmin) < 1000000),
         coalesce(format('%s, %s', s.who, coalesce('since ' || _ago(c.wall - s.since), age(s.xmin) || ' xids old')),
                  'nobody holds one')
    from clock c
    left join lateral (select x.* from snapshots x order by age(x.xmin) desc limit 1) s on true
  union all
  select 'dead rows',
         t.n_dead_tup < greatest(1000000, 2 * t.n_live_tup) or t.vacuumed_at > c.wall - interval '1 hour',
         format('%s: %s dead, %s live, vacuumed %s', t.relname, t.n_dead_tup, t.n_live_tup,
                coalesce(_ago(c.wall - t.vacuumed_at) || ' ago', 'never'))
    from tables t, clock c
  union all
  select 'releases',
         coalesce(bool_and(r.release <= l.release), true),
         format('functions of %s%s', array_to_string(l.release, '.'),
                coalesce('; pods of ' || string_agg(format('%s (%s)', array_to_string(r.release, '.'), r.pods), ', '
                                                    order by r.release) filter (where r.pods is not null), '; no pods'))
         || case when coalesce(bool_and(r.release <= l.release), true) then '' else ': run euterpe-migrate of the newest' end
    from loaded l
    left join releases r on true
   group by l.release
  union all
  select 'workers ' || k.kind,
         k.alive > 0 or k.waiting = 0,
         format('%s alive, %s entries wait', k.alive, k.waiting)
    from (select case q.holds when 'jobs' then 'transcode' else 'webhook' end as kind,
                 coalesce(sum(l.ready_count + l.delayed_count + l.leased_count), 0) as waiting,
                 (select count(*)
                    from workers w, clock c
                   where w.stopped_at is null and w.seen_at > c.now - interval '2 minutes'
                     and w.kind in (case q.holds when 'jobs' then 'transcode' else 'webhook' end, 'other')) as alive
            from queues q
            join lines l on l.name = q.name
           group by q.holds) k
  union all
  select 'locks',
         count(*) = 0,
         coalesce(string_agg(format('pid %s, %s', p.pid, a.usename), '; '), 'nobody keeps the lines from ticking')
    from pg_locks p
    join pg_stat_activity a on a.pid = p.pid, clock c
   where p.locktype = 'advisory' and p.classid = 6649204 and p.granted
     and p.objid::bigint < 32768 -- a line's; the turns of euterpe-migrate are above
     and p.database = (select d.oid from pg_database d where d.datname = current_database())
     and coalesce(a.query_start, a.backend_start) < c.wall - interval '1 minute'
  union all
  select 'stranded events',
         pg_sequence_last_value('euterpe_line.mended') = 0,
         format('%s jobs found with an event in no line', pg_sequence_last_value('euterpe_line.mended'))
  union all
  select 'endpoints',
         count(*) = 0,
         format('%s do not answer%s', count(*), coalesce(', the longest since '
                || to_char(min(e.changed_at) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), ''))
    from endpoint_circuits e
   where e.state <> 'closed'
  union all
  -- A worker that lacks a key hands its events back untried, and they come and go without an attempt being counted.
  select 'keys',
         count(*) = 0,
         case when count(*) = 0 then 'no webhook waits for one'
              else format('%s of the next webhooks were handed back for a key that a webhook worker lacks', count(*)) end
    from queues q
   cross join lateral (
         select d.job_id, d.sequence, d.seq
           from delayed d
          where d.queue_id = q.queue_id and d.sequence > 0
          order by d.run_at
          limit 100) d
   cross join lateral (
         select e.last_error ->> 'class' as class, e.line_seq
           from job_outbox_events e
          where e.job_id = d.job_id and e.sequence = d.sequence offset 0) e
   where q.holds = 'events' and e.class = 'unknown_kek' and e.line_seq = d.seq
  union all
  select 'strays ' || l.name,
         l.strays = 0,
         format('%s found below a safe point', l.strays)
    from lines l
  union all
  select 'tick ' || l.name,
         l.ticked_at > c.now - interval '1 minute'
           or coalesce(l.ready_count + l.delayed_count + l.leased_count, 0) = 0,
         case when l.ticked_at = 'epoch' and coalesce(l.ready_count + l.delayed_count + l.leased_count, 0) = 0
              then 'idle, has never run'
              when l.ticked_at = 'epoch' then 'has never run: is a worker there?'
              else format('%s ago%s', _ago(c.now - l.ticked_at),
                          case when l.held_until > c.now
                               then format(', reclaim waits until %s', to_char(l.held_until at time zone 'UTC', 'HH24:MI:SS'))
                               else '' end) end
    from lines l, clock c
  union all
  select 'line ' || l.name,
         case when l.paused_at is null then coalesce(l.oldest_ready_age_ms, 0) < 3600000
              else l.paused_at > c.now - interval '4 hours' end,
         format('%s ready%s%s', coalesce(l.ready_count, 0),
                coalesce(', oldest ' || _ago(l.oldest_ready_age_ms * interval '1 millisecond'), ''),
                coalesce(', paused for ' || _ago(c.now - l.paused_at), ''))
    from lines l, clock c
  union all
  select 'safe point ' || l.name,
         l.safe_lag < 100000000,
         format('%s behind virtual time', l.safe_lag)
         || case when l.safe_lag >= 100000000 then ': a writer that stays open holds it' else '' end
    from lines l
$$;

comment on function euterpe.health_v1 is 'What a DBA should worry about; every row with ok = false is an alarm.';
revoke execute on function euterpe.health_v1 from public;
