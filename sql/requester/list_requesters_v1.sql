-- list_requesters_v1: who may ask for work, and with which share and limits.
--
--   caller  the command line
create or replace function euterpe.list_requesters_v1()
returns table (
  requester_id        text,
  display_name        text,
  weight              smallint,
  max_priority        smallint,
  max_open_jobs       integer,
  requests_per_second integer,
  request_burst       integer,
  disabled_at         timestamptz,
  created_at          timestamptz
)
language sql
stable
security definer
set search_path = euterpe, pg_temp
as $$
  select r.requester_id, r.display_name, r.weight, r.max_priority, r.max_open_jobs,
         r.requests_per_second, r.request_burst, r.disabled_at, r.created_at
    from requesters r
   order by r.requester_id
$$;

comment on function euterpe.list_requesters_v1 is 'Who may ask for work, and with which share and limits.';
revoke execute on function euterpe.list_requesters_v1 from public;
