-- health_v1: what a DBA should worry about; every row with ok = false is an alarm.
--
--   caller  the view health, monitoring
--   cost    catalog, sequences, the newest samples and the endpoints in trouble; no table of jobs is read
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
  ), clock as (
    select _now() as now
  )
  select 'partitions ahead'                                           as topic,
         coalesce(w.until > c.now + interval '2 weeks', false)        as ok,
         coalesce(format('until %s', to_char(w.until at time zone 'UTC', 'YYYY-MM-DD')), 'none: run upkeep_v1') as says
    from weeks w, clock c
  union all
  select 'upkeep',
         coalesce(max(l.sampled_at) > c.now - interval '5 minutes', false),
         coalesce(format('last sample %s ago', date_trunc('second', c.now - max(l.sampled_at))), 'has never run')
    from lines l, clock c
   group by c.now
  union all
  select 'stranded events',
         pg_sequence_last_value('euterpe_line.mended') = 0,
         format('%s jobs found whose next event was in no line', pg_sequence_last_value('euterpe_line.mended'))
  union all
  select 'endpoints',
         count(*) = 0,
         format('%s do not answer%s', count(*), coalesce(', the longest since '
                || to_char(min(e.changed_at) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), ''))
    from endpoint_circuits e
   where e.state <> 'closed'
  union all
  select 'strays in ' || l.name,
         l.strays = 0,
         format('%s found below a safe point', l.strays)
    from lines l
  union all
  select 'tick of ' || l.name,
         l.ticked_at > c.now - interval '1 minute'
           or coalesce(l.ready_count + l.delayed_count + l.leased_count, 0) = 0,
         case when l.ticked_at = 'epoch' then 'has never run'
              else format('%s ago%s', date_trunc('second', c.now - l.ticked_at),
                          case when l.held_until > c.now
                               then format(', reclaim waits until %s', to_char(l.held_until at time zone 'UTC', 'HH24:MI:SS'))
                               else '' end) end
    from lines l, clock c
  union all
  select 'line ' || l.name,
         coalesce(l.oldest_ready_age_ms, 0) < 3600000 or l.paused_at is not null,
         format('%s ready, oldest %s s%s', coalesce(l.ready_count, 0), coalesce(l.oldest_ready_age_ms, 0) / 1000,
                case when l.paused_at is not null then ', paused' else '' end)
    from lines l
  union all
  select 'safe point of ' || l.name,
         l.safe_lag < 100000000,
         format('%s behind virtual time (a writer that stays open holds it)', l.safe_lag)
    from lines l
$$;

comment on function euterpe.health_v1 is 'What a DBA should worry about; every row with ok = false is an alarm.';
revoke execute on function euterpe.health_v1 from public;
