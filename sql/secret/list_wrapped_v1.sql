-- list_wrapped_v1: the wrapped keys of sealed secrets, a piece at a time, for somebody who wraps them anew.
--
--   caller  the command line: kek rewrap
--   writes  nothing
--   raises  22023  p_after is no place, or p_limit out of range
--   answers where each is (place: give the last one as p_after) and what it is bound to. A row with nothing but its place:
--           none so far, go on from there. No row: that was all. No requester: the job is being dropped with its week.
--   cost    at most 10,000 secrets are looked at, however few are found
--   see     contract §10; docs/security.md
--
-- No index on the KEK: every enqueue would pay for what happens four times a year. A walk by primary key costs the
-- same in all and can be taken up anywhere. Signing secrets first: they are few.
create or replace function euterpe.list_wrapped_v1(
  p_kek_id text    default null,
  p_after  text    default null,
  p_limit  integer default 500
)
returns table (
  place        text,
  purpose      text,
  bound_to     uuid,
  requester_id text,
  version      integer,
  kek_id       text,
  dek_wrapped  bytea
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_after text[] := string_to_array(coalesce(p_after, 'signing//0'), '/');
begin
  if p_limit is null or p_limit not between 1 and 1000
     or cardinality(v_after) <> 3 or v_after[1] not in ('signing', 'job') then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'list_wrapped_v1: p_limit must be in 1..1000, p_after a place it has answered';
  end if;

  if v_after[1] = 'signing' then
    return query
    select format('signing/%s/%s', s.requester_id, s.version), 'signing', null::uuid, s.requester_id, s.version,
           s.secret_kek_id, s.secret_dek_wrapped
      from signing_secrets s
     where (s.requester_id, s.version) > (v_after[2], v_after[3]::integer)
       and (p_kek_id is null or s.secret_kek_id = p_kek_id)
     order by s.requester_id, s.version
     limit p_limit;
    if found then
      return;
    end if;
    v_after := array['job', '00000000-0000-0000-0000-000000000000', ''];
  end if;

  return query
  with seen as materialized (
    select s.job_id, s.purpose, s.bound_to, s.credential_version, s.storage_creds_kek_id, s.storage_creds_dek_wrapped
      from job_secrets s
     where s.job_id >= v_after[2]::uuid
       and (s.job_id, s.purpose) > (v_after[2]::uuid, v_after[3])
     order by s.job_id, s.purpose
     limit 10000
  ), wanted as materialized (
    select e.*
      from seen e
     where p_kek_id is null or e.storage_creds_kek_id = p_kek_id
     order by e.job_id, e.purpose
     limit p_limit
  ), last_seen as (
    select e.job_id, e.purpose from seen e order by e.job_id desc, e.purpose desc limit 1
  )
  select x.place, x.purpose, x.bound_to, x.requester_id, x.version, x.kek_id, x.dek_wrapped
    from (select format('job/%s/%s', w.job_id, w.purpose) as place, w.purpose, coalesce(w.bound_to, w.job_id) as bound_to,
                 (select j.requester_id from inbox_jobs j where j.job_id = w.job_id) as requester_id,
                 w.credential_version as version, w.storage_creds_kek_id as kek_id, w.storage_creds_dek_wrapped as dek_wrapped,
                 w.job_id as nth_job
            from wanted w
           union all
          select format('job/%s/%s', l.job_id, l.purpose), null, null, null, null, null, null, l.job_id
            from last_seen l
           where not exists (select from wanted)) x
   order by x.nth_job, x.purpose;
end;
$$;

comment on function euterpe.list_wrapped_v1 is
  'The wrapped keys of sealed secrets and what they are bound to, a piece at a time; for wrapping them anew.';
revoke execute on function euterpe.list_wrapped_v1 from public;
