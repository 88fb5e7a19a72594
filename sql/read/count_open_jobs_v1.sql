-- count_open_jobs_v1: how many unfinished jobs a requester has, up to a limit.
--
--   caller  euterpe-api, every few seconds per requester that enqueues
--   writes  nothing
--   raises  22023  p_limit out of range
--   cost    up to p_limit entries of the index of unfinished jobs
create or replace function euterpe.count_open_jobs_v1(
  p_requester_id text,
  p_limit        integer
)
returns bigint
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
as $$
begin
  if coalesce(p_limit, 0) not between 1 and 1000000 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('count_open_jobs_v1: p_limit=%s must be in 1..1000000', p_limit);
  end if;
  return (select count(*)
            from (select from inbox_jobs j
                   where j.requester_id = p_requester_id and j.finished_at is null
                   limit p_limit) o);
end;
$$;

comment on function euterpe.count_open_jobs_v1 is 'How many unfinished jobs a requester has, counted up to a limit.';
revoke execute on function euterpe.count_open_jobs_v1 from public;
