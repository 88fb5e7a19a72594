-- _wait_for_circuits: which of these events must wait, and until when, because their endpoint does not answer.
--
--   caller  claim_events_v1, before it hands them out
--   writes  endpoint_circuits (half_open, the time of the next probe)
--   locks   endpoint_circuits, for update skip locked
--   answers per event, in the order given: null, go; or a time, wait
--   see     design §4.6; docs/outbox.md
--
-- A circuit that is not closed lets one delivery pass from probe_at on, and moves probe_at by a lease: if that
-- delivery is never settled, another one passes then. The others wait for that time too, so that the thousands of a
-- dead endpoint do not come by every second; should the probe arrive, _move_up fetches them at once. Where another
-- claim holds the circuit at this moment, a second is enough. An endpoint without a row is closed.
create or replace function euterpe._wait_for_circuits(
  p_now           timestamptz,
  p_job_ids       uuid[],
  p_sequences     integer[],
  p_lease_seconds integer
)
returns timestamptz[]
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_next   timestamptz := p_now + make_interval(secs => p_lease_seconds);
  v_jobs   uuid[];
  v_seqs   integer[];
  v_names  text[];
  v_opens  timestamptz[];
  v_probed text[];
begin
  if not exists (select from endpoint_circuits c where c.state <> 'closed') then
    return array_fill(null::timestamptz, array[cardinality(p_job_ids)]);
  end if;

  select array_agg(e.job_id), array_agg(e.sequence), array_agg(c.requester_id || ' ' || c.origin), array_agg(c.probe_at)
    into v_jobs, v_seqs, v_names, v_opens
    from job_outbox_events e
    join endpoint_circuits c on c.requester_id = e.requester_id and c.origin = e.callback_origin
   where e.job_id = any (p_job_ids) and c.state <> 'closed';

  with due as materialized (
    select c.requester_id, c.origin
      from endpoint_circuits c
     where c.state <> 'closed' and c.probe_at <= p_now
       and c.requester_id || ' ' || c.origin = any (v_names)
       for update skip locked
  ), probed as (
    update endpoint_circuits c
       set state      = 'half_open',
           changed_at = case when c.state = 'half_open' then c.changed_at else p_now end,
           probe_at   = v_next
      from due d
     where c.requester_id = d.requester_id and c.origin = d.origin
    returning c.requester_id || ' ' || c.origin as name
  )
  select array_agg(p.name) into v_probed from probed p;

  return array(
    select case when w.name is null or (w.name = any (v_probed) and w.nth_of_name = 1) then null
                when w.name = any (v_probed) then v_next
                else greatest(w.opens, p_now + interval '1 second') end
      from (select i.nth, o.name, o.opens,
                   row_number() over (partition by o.name order by i.nth) as nth_of_name
              from unnest(p_job_ids, p_sequences) with ordinality as i (job_id, sequence, nth)
              left join unnest(v_jobs, v_seqs, v_names, v_opens) as o (job_id, sequence, name, opens)
                on o.job_id = i.job_id and o.sequence = i.sequence) w
     order by w.nth);
end;
$$;

comment on function euterpe._wait_for_circuits is
  'Says which events must wait because their endpoint does not answer; lets one pass as a probe.';
revoke execute on function euterpe._wait_for_circuits from public;
