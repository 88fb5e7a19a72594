-- _note_deliveries: what deliveries say of their endpoints.
--
--   caller  settle_events_v1, last, after the locks of jobs and events
--   writes  endpoint_circuits; delayed and ready, through _move_up
--   see     design §4.6; docs/outbox.md
--
-- There is a row only while an endpoint is in trouble: a delivery to a sound one writes nothing here, so endpoints are
-- no hot rows. One success closes: what was delayed for that endpoint need not wait any longer. Five failures in a row
-- open, as does a probe that failed; the next probe comes after 30 s, doubled with each that fails, at most 10 min.
create or replace function euterpe._note_deliveries(
  p_now     timestamptz,
  p_settled euterpe._settled[]
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_temp
as $$
declare
  v_endpoint record;
  v_circuit  endpoint_circuits%rowtype;
begin
  for v_endpoint in
    select s.requester_id, s.origin, bool_or(s.error_class is null) as is_alive,
           count(*) filter (where s.trips)::integer as failures
      from unnest(p_settled) s
     where s.origin is not null
     group by s.requester_id, s.origin
    having bool_or(s.trips)
        or (bool_or(s.error_class is null)
            and exists (select from endpoint_circuits c
                         where c.requester_id = s.requester_id and c.origin = s.origin))
     order by s.requester_id, s.origin
  loop
    if v_endpoint.is_alive then
      delete from endpoint_circuits c
       where c.requester_id = v_endpoint.requester_id and c.origin = v_endpoint.origin
      returning c.* into v_circuit;
      if v_circuit.state <> 'closed' then
        perform _move_up(v_endpoint.requester_id || ' ' || v_endpoint.origin);
      end if;
      continue;
    end if;

    insert into endpoint_circuits as c (requester_id, origin, state, consecutive_failures, changed_at, probe_at)
    values (v_endpoint.requester_id, v_endpoint.origin,
            case when v_endpoint.failures >= 5 then 'open' else 'closed' end, v_endpoint.failures, p_now,
            case when v_endpoint.failures >= 5 then p_now + interval '30 seconds' end)
        on conflict on constraint endpoint_circuits_pkey do update
       set consecutive_failures = c.consecutive_failures + v_endpoint.failures,
           state         = case when c.state <> 'closed' or c.consecutive_failures + v_endpoint.failures >= 5
                                then 'open' else 'closed' end,
           changed_at    = case when c.state = 'half_open'
                                  or (c.state = 'closed' and c.consecutive_failures + v_endpoint.failures >= 5)
                                then p_now else c.changed_at end,
           failed_probes = c.failed_probes + (c.state = 'half_open')::integer,
           probe_at      = case c.state
                             when 'half_open' then p_now + least(interval '10 minutes',
                                                                 interval '30 seconds' * power(2, least(c.failed_probes + 1, 5)))
                             when 'open' then c.probe_at
                             else case when c.consecutive_failures + v_endpoint.failures >= 5
                                       then p_now + interval '30 seconds' end
                           end;
  end loop;
end;
$$;

comment on function euterpe._note_deliveries is
  'Opens the circuit of an endpoint that keeps failing, closes it with the first success.';
revoke execute on function euterpe._note_deliveries from public;
