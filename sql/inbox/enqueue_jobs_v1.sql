-- enqueue_jobs_v1: put a batch of jobs of one requester in the inbox.
--
--   caller  euterpe-api; producers in plain SQL
--   writes  see _enqueue_jobs
--   emits   one queued event per accepted job
--   raises  22023  p_jobs is not an array of 1 to 1000 objects
--           23505  a job_id given by the caller is in use
--           UT005, UT006, UT007, UT011  as enqueue_job_v1
--   answers per item: accepted · replayed · conflict · invalid, with a message; one bad item harms no other
--   see     contract §9
--
-- An item has the names of enqueue_job_v1's arguments without p_: {"request": {…}, "priority": 200, …}.
create or replace function euterpe.enqueue_jobs_v1(
  p_requester_id text,
  p_jobs         jsonb,
  p_queue        text default 'transcode'
)
returns table (
  ordinal    integer,
  job_id     uuid,
  outcome    text,
  response   bytea,
  created_at timestamptz,
  message    text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
begin
  perform _insist_read_committed();
  if jsonb_typeof(p_jobs) is distinct from 'array' or jsonb_array_length(p_jobs) not between 1 and 1000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'enqueue_jobs_v1: p_jobs must be a JSON array of 1 to 1000 objects';
  end if;

  return query
  select e.ordinal, e.job_id, e.outcome, e.response, e.created_at, e.message
    from _enqueue_jobs(_now(), p_requester_id, p_queue, array(
           select _read_job(i.nth::integer, i.item)
             from jsonb_array_elements(p_jobs) with ordinality as i (item, nth)
            order by i.nth)) e;
end;
$$;

comment on function euterpe.enqueue_jobs_v1 is
  'Puts a batch of jobs of one requester in the inbox; answers per item.';
revoke execute on function euterpe.enqueue_jobs_v1 from public;
