-- prunable_weeks_v1: which weeks are old enough to be dropped, and what keeps those that must stay.
--
--   caller  euterpe-migrate retain; people in psql
--   raises  22023  p_retention_days out of range
--   answers one row per week whose last id is older than p_retention_days
--   see     docs/line.md
--
-- In UTC, as partitions are: where clocks change, a week of the session's zone may be an hour short.
-- A week stays while a job in it is unfinished (a schedule, a job that is retried for weeks) or an event is
-- undelivered. Cost: reads the events of the old weeks.
create or replace function euterpe.prunable_weeks_v1(
  p_retention_days integer
)
returns table (
  week               timestamptz,
  unfinished_jobs    bigint,
  undelivered_events bigint,
  is_prunable        boolean
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set timezone = 'UTC'
as $$
declare
  v_week timestamptz;
  v_from uuid;
  v_to   uuid;
begin
  if coalesce(p_retention_days, 0) not between 1 and 36500 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('prunable_weeks_v1: p_retention_days=%s must be in 1..36500', p_retention_days);
  end if;

  for v_week in
    select to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC'
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'euterpe.inbox_jobs'::regclass
     order by 1
  loop
    exit when v_week + interval '1 week' > _now() - make_interval(days => p_retention_days);
    v_from := _id_floor(v_week);
    v_to   := _id_floor(v_week + interval '1 week');
    week   := v_week;
    select count(*) into unfinished_jobs
      from inbox_jobs j
     where j.job_id >= v_from and j.job_id < v_to and j.finished_at is null;
    select count(*) into undelivered_events
      from job_outbox_events e
     where e.job_id >= v_from and e.job_id < v_to and e.finished_at is null;
    is_prunable := unfinished_jobs = 0 and undelivered_events = 0;
    return next;
  end loop;
end;
$$;

comment on function euterpe.prunable_weeks_v1 is
  'Weeks older than p_retention_days: whether they may be dropped, and what keeps those that may not.';
revoke execute on function euterpe.prunable_weeks_v1 from public;
