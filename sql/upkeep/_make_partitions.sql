-- _make_partitions: the weeks of the six tables of a job, from last week to four weeks ahead.
--
--   caller  upkeep_v1, seed.sql
--   writes  partitions that are missing; nothing when none is
--   see     docs/line.md
--
-- Created alone and then attached: "create … partition of" would lock the parent against everybody, attach
-- does not lock out readers or writers. lock_timeout bounds the wait for what does conflict (vacuum of the
-- parent, another attach); then nothing is made, and the next run tries again.
-- Last week is made too: an id may be up to ten minutes old.
-- Dynamic SQL: names are built from constants and a date.
create or replace function euterpe._make_partitions(
  p_now timestamptz
)
returns integer
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
set timezone = 'UTC'
set lock_timeout = '1s'
as $$
declare
  v_week  timestamptz;
  v_table text;
  v_name  text;
  v_made  integer := 0;
begin
  for v_week in
    select w from generate_series(date_trunc('week', p_now) - interval '1 week',
                                  date_trunc('week', p_now) + interval '4 weeks', interval '1 week') w
  loop
    foreach v_table in array array['inbox_jobs', 'job_requests', 'job_results', 'job_secrets',
                                   'job_outbox_events', 'outbox_attempts']
    loop
      v_name := _partition_name(v_table, v_week);
      continue when to_regclass('euterpe.' || v_name) is not null;

      -- Free space for heap-only updates. A job's row nearly doubles when it is claimed and reports progress
      -- (worker, lease, token), and for a moment its old and its new version share the page: four times what was
      -- inserted. An event's row changes less. The others are written once.
      execute format(
        'create table euterpe.%I (like euterpe.%I including all) '
        'with (fillfactor = %s, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)',
        v_name, v_table, case v_table when 'inbox_jobs' then 30 when 'job_outbox_events' then 50 else 100 end);
      execute format('alter table euterpe.%I attach partition euterpe.%I for values from (%L) to (%L)',
                     v_table, v_name, _id_floor(v_week), _id_floor(v_week + interval '1 week'));
      v_made := v_made + 1;
    end loop;
  end loop;

  return v_made;
end;
$$;

comment on function euterpe._make_partitions is
  'Makes the missing weekly partitions, from last week to four weeks ahead.';
revoke execute on function euterpe._make_partitions from public;
