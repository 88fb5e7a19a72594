-- steer_jobs_v1: cancel, retry, redrive, prioritise or redeliver many jobs; asked once it only counts.
--
--   caller  an operator
--   writes  nothing without p_confirm; with it, what cancel_job_v1, retry_job_v1, redrive_job_v1, prioritise_job_v1 or
--           redeliver_events_v1 write for each job
--   raises  22023  an unknown act, no filter at all, a priority missing or out of range, a number out of range
--           UT004  no such requester, no such error code
--           UT006  no such queue
--           UT011  not read committed
--   answers how many match (counted up to 10,000), how many were done, and how many refused because they had moved on
--   cost    the jobs of the time range, by primary key; give p_since and p_until on a large system (default: 30 days)
--   see     docs/operations.md
--
-- Asked twice: the first call shows the count and what it is made of, the second repeats it with p_confirm => that count
-- and does it to at most as many, oldest first, p_limit per call, in one transaction. More than match is refused: whoever
-- confirms has looked. Repeat until it says that none is left.
create or replace function euterpe.steer_jobs_v1(
  p_act          text,
  p_queue        text        default null,
  p_requester_id text        default null,
  p_error_code   text        default null,
  p_status       text        default null,
  p_since        timestamptz default null,
  p_until        timestamptz default null,
  p_priority     integer     default null,
  p_why          text        default null,
  p_confirm      integer     default null,
  p_limit        integer     default 200
)
returns table (
  matching integer,
  done     integer,
  refused  integer,
  says     text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_now     timestamptz := _now();
  v_ids     uuid[];
  v_id      uuid;
  v_done    integer := 0;
  v_refused integer := 0;
begin
  perform _insist_read_committed();
  if coalesce(p_act, '') not in ('cancel', 'retry', 'redrive', 'prioritise', 'redeliver')
     or num_nonnulls(p_queue, p_requester_id, p_error_code, p_status, p_since, p_until) = 0
     or coalesce(p_limit, 0) not between 1 and 1000
     or (p_act = 'prioritise') <> (coalesce(p_priority, -1) between 0 and 1000) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'steer_jobs_v1: p_act is cancel, retry, redrive, prioritise (with p_priority in 0..1000) or redeliver; '
                'give at least one of p_queue, p_requester_id, p_error_code, p_status, p_since, p_until; p_limit in 1..1000';
  end if;
  if p_queue is not null and not exists (select from queues q where q.name = p_queue and q.holds = 'jobs') then
    raise exception using errcode = 'UT006', message = format('there is no queue %s for jobs', p_queue);
  end if;

  if p_requester_id is not null and not exists (select from requesters r where r.requester_id = p_requester_id) then
    raise exception using errcode = 'UT004', message = format('there is no requester %s', p_requester_id);
  end if;

  v_ids := _matching_jobs(p_act, p_queue, p_requester_id, p_error_code, p_status, coalesce(p_since, v_now - interval '30 days'),
                          coalesce(p_until, v_now + interval '1 hour'), p_priority, 10000);
  -- A worker of a newer release may have stored a code that the table does not have: what was found counts, too.
  if cardinality(v_ids) = 0 and p_error_code is not null
     and not exists (select from error_codes c where c.code = p_error_code) then
    raise exception using errcode = 'UT004', message = format('there is no error code %s', p_error_code),
                          hint = 'error_codes has them all';
  end if;
  if p_confirm is null or p_confirm > cardinality(v_ids) then
    return query
    select cardinality(v_ids), 0, 0,
           case when cardinality(v_ids) = 0 then 'nothing matches'
                else format('nothing was done; would be: %s%s. Repeat with p_confirm => %s; %s per call',
                            string_agg(format('%s %s', s.count, s.status), ', ' order by s.count desc),
                            case when cardinality(v_ids) = 10000 then ' or more' else '' end, cardinality(v_ids), p_limit) end
      from (select j.status, count(*) as count
              from inbox_jobs j where j.job_id = any (v_ids) group by j.status) s;
    return;
  end if;

  -- One by one, each in a subtransaction: a job that has moved on since refuses, and the others are done all the same.
  -- Whoever refuses is passed over, up to a bound: two hundred that always refuse must not hide those behind them.
  foreach v_id in array v_ids loop
    exit when v_done >= least(p_confirm, p_limit) or v_done + v_refused >= 2000;
    begin
      case p_act
        when 'cancel'     then perform cancel_job_v1(v_id, null, p_why);
        when 'retry'      then perform retry_job_v1(v_id, null, null, null, p_why);
        when 'redrive'    then perform redrive_job_v1(v_id, null, null, null, p_why);
        when 'prioritise' then perform prioritise_job_v1(v_id, p_priority, p_why);
        -- Only what was given up: the rest has arrived.
        when 'redeliver'  then perform redeliver_events_v1(p_event_id => e.event_id, p_why => p_why)
                                  from job_outbox_events e
                                 where e.job_id = v_id and e.status = 'dead_letter';
      end case;
      v_done := v_done + 1;
    exception when sqlstate 'UT002' or sqlstate 'UT004' or sqlstate 'UT005' or sqlstate 'UT008' then
      v_refused := v_refused + 1;
    end;
  end loop;
  return query
  select cardinality(v_ids), v_done, v_refused,
         case when cardinality(v_ids) > v_done + v_refused
              then format('%s matched and are left; repeat', cardinality(v_ids) - v_done - v_refused)
              else 'none is left' end;
end;
$$;

comment on function euterpe.steer_jobs_v1 is
  'Cancels, retries, redrives, prioritises or redelivers many jobs. Asked once it only counts; p_confirm makes it act.';
revoke execute on function euterpe.steer_jobs_v1 from public;
