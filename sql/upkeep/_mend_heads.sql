-- _mend_heads: find jobs whose next event is in no line although nothing is before it.
--
--   caller  upkeep_v1
--   writes  inbox_jobs.head_sequence, the event and its line through _advance_heads; euterpe_line.mend_cursor_ms, mended
--   answers how many were found; health shows the sum, which should stay 0
--   see     design §4.5; docs/outbox.md
--
-- By construction there are none. Should one appear all the same (a bug, a hand in the tables), its requester must not
-- wait for ever. Looks at 500 jobs per run, in id order, round and round: at ten seconds a run, some four million a day.
create or replace function euterpe._mend_heads(
  p_now timestamptz
)
returns bigint
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_from  uuid := _id_floor(timestamptz 'epoch' + interval '1 millisecond'
                            * pg_sequence_last_value('euterpe_line.mend_cursor_ms'));
  v_jobs  uuid[];
  v_last  uuid;
begin
  select array_agg(j.job_id) filter (where j.event_filter is not null and j.updated_at < p_now - interval '1 minute'),
         case when count(*) = 500 then (array_agg(j.job_id order by j.job_id desc))[1] end
    into v_jobs, v_last
    from (select i.job_id, i.event_filter, i.updated_at
            from inbox_jobs i
           where i.job_id >= v_from
           order by i.job_id
           limit 500) j;
  -- At the end it starts over. Ids of one millisecond may be looked at twice.
  perform setval('euterpe_line.mend_cursor_ms',
                 coalesce((extract(epoch from _id_time(v_last)) * 1000)::bigint
                          + (_id_floor(_id_time(v_last)) = v_from)::integer, 0));
  if v_jobs is null then
    return 0;
  end if;

  -- First without a lock, because nearly always there is nothing to mend and nobody shall wait for that; then what was
  -- found is locked, and looked at again in a later statement, as everywhere.
  for v_look in 1 .. 2 loop
    v_jobs := array(
      select j.job_id
        from inbox_jobs j
       where j.job_id = any (v_jobs)
         and case when j.head_sequence is null
                  then exists (select from job_outbox_events e
                                where e.job_id = any (v_jobs) and e.job_id = j.job_id and e.status = 'waiting')
                  else not exists (select from job_outbox_events e
                                    where e.job_id = any (v_jobs) and e.job_id = j.job_id and e.sequence = j.head_sequence
                                      and e.status in ('ready', 'claimed')) end);
    exit when cardinality(v_jobs) = 0 or v_look = 2;
    with locked as materialized (
      select j.job_id from inbox_jobs j where j.job_id = any (v_jobs) for no key update skip locked
    )
    select coalesce(array_agg(l.job_id), '{}') into v_jobs from locked l;
  end loop;

  if cardinality(v_jobs) > 0 then
    perform _advance_heads(v_jobs);
    perform setval('euterpe_line.mended', pg_sequence_last_value('euterpe_line.mended') + cardinality(v_jobs));
  end if;
  return cardinality(v_jobs);
end;
$$;

comment on function euterpe._mend_heads is 'Finds jobs whose next event is in no line, puts it there, and counts them.';
revoke execute on function euterpe._mend_heads from public;
