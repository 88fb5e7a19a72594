-- redeliver_events_v1: deliver events again that were delivered or given up, with the same event_id and body.
--
--   caller  euterpe-api for its requester; an operator, for any (p_requester_id null)
--   writes  job_outbox_events (ready, a new budget), ready; inbox_jobs.callback_trouble; operator_log
--   raises  22023  not exactly one of event, job, or a time range with a requester; a limit out of range
--           UT002  that one event is on its way already, or was never meant to be sent
--           UT004  no such event or job, or another requester's
--           UT011  not read committed
--   answers how many, and where to go on: the last event looked at when there may be more, else null
--   see     design §4.5: a redelivery neither gates nor is gated
--
-- A time range means the time of the events; jobs may be up to 31 days older. Cost: the requester's jobs in that
-- range, by index, p_limit events at a time. Asking again clears what was held against the job's callbacks.
create or replace function euterpe.redeliver_events_v1(
  p_requester_id   text        default null,
  p_event_id       text        default null,
  p_job_id         uuid        default null,
  p_since          timestamptz default null,
  p_until          timestamptz default null,
  p_after_event_id text        default null,
  p_limit          integer     default 1000,
  p_why            text        default null
)
returns table (
  redelivered   bigint,
  last_event_id text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  -- Within what an id can say, so that any since and until may be given.
  v_from      uuid    := _id_floor(greatest(p_since - interval '31 days', 'epoch'));
  v_to        uuid    := _id_floor(least(p_until, timestamptz '9999-01-01') + interval '1 millisecond');
  v_after     uuid    := uuid '00000000-0000-0000-0000-000000000000';
  v_after_seq integer := 0;
  v_jobs      uuid[];
  v_sequences integer[];
  v_last      text;
begin
  perform _insist_read_committed();
  perform _insist_requester(p_requester_id);
  if num_nonnulls(p_event_id, p_job_id, p_since) <> 1 or num_nonnulls(p_since, p_until) = 1
     or (p_since is not null and p_requester_id is null) or coalesce(p_limit, 0) not between 1 and 1000
     or p_event_id !~ '^evt_[0-9a-f]{32}_[1-9][0-9]{0,8}$' or p_after_event_id !~ '^evt_[0-9a-f]{32}_[1-9][0-9]{0,8}$' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'redeliver_events_v1: give one of p_event_id, p_job_id, or p_since and p_until with p_requester_id; '
                'p_limit in 1..1000';
  end if;
  if p_event_id is not null then
    p_job_id := substr(p_event_id, 5, 32)::uuid;
  end if;
  if p_after_event_id is not null then
    v_after     := substr(p_after_event_id, 5, 32)::uuid;
    v_after_seq := split_part(p_after_event_id, '_', 3)::integer;
  end if;
  if p_job_id is not null and not exists (
       select from inbox_jobs j
        where j.job_id = p_job_id and (p_requester_id is null or j.requester_id = p_requester_id)
          and (p_event_id is null or split_part(p_event_id, '_', 3)::integer <= j.last_sequence)) then
    raise exception using
      errcode = 'UT004',
      message = format('there is no %s', coalesce('event ' || p_event_id, 'job ' || p_job_id::text));
  end if;

  select array_agg(c.job_id), array_agg(c.sequence),
         case when count(*) = p_limit then (array_agg(c.event_id order by c.job_id desc, c.sequence desc))[1] end
    into v_jobs, v_sequences, v_last
    from (select e.job_id, e.sequence, e.event_id
            from inbox_jobs j
            join job_outbox_events e on e.job_id = j.job_id
           where (p_requester_id is null or j.requester_id = p_requester_id)
             and (p_job_id is null or (j.job_id = p_job_id and e.job_id = p_job_id))
             and (p_event_id is null or e.event_id = p_event_id)
             and (p_since is null or (j.job_id >= v_from and j.job_id < v_to and e.job_id >= v_from and e.job_id < v_to
                                      and j.updated_at >= p_since -- every event touches its job
                                      and e.created_at >= p_since and e.created_at < p_until))
             and (j.job_id, e.sequence) > (v_after, v_after_seq)
             and j.job_id >= v_after
             and e.status in ('delivered', 'dead_letter') and e.attempt_count < 1000
           order by e.job_id, e.sequence
           limit p_limit) c;

  if v_jobs is not null then
    perform _lock_jobs(v_jobs);
    perform _lock_events(v_jobs, v_sequences);
    update inbox_jobs j
       set callback_trouble = null
     where j.job_id = any (v_jobs) and j.callback_trouble is not null;
    with asked as (
      update job_outbox_events e
         set status             = 'waiting',
             unstarted_expiries = 0,
             finished_at        = null
        from unnest(v_jobs, v_sequences) as s (job_id, sequence)
       where e.job_id = any (v_jobs)
         and e.job_id = s.job_id
         and e.sequence = s.sequence
         and e.status in ('delivered', 'dead_letter')
      returning e.job_id, e.sequence
    )
    select array_agg(a.job_id), array_agg(a.sequence) into v_jobs, v_sequences from asked a;
  end if;
  if v_jobs is null and p_event_id is not null then
    raise exception using
      errcode = 'UT002',
      message = format('event %s is on its way already, or was never meant to be sent', p_event_id);
  end if;
  if v_jobs is not null then
    perform _file_events(v_jobs, v_sequences, null, null, true);
    if p_requester_id is null then
      perform _log_act('redeliver_events', coalesce(p_event_id, p_job_id::text), p_why, p_job_id);
    end if;
  end if;

  return query
  select coalesce(cardinality(v_jobs), 0)::bigint, v_last;
end;
$$;

comment on function euterpe.redeliver_events_v1 is
  'Delivers events again that were delivered or given up: one, those of a job, or those of a requester in a time range.';
revoke execute on function euterpe.redeliver_events_v1 from public;
