-- rewrap_v1: put newly wrapped keys in place of those that were listed, where nobody else did meanwhile.
--
--   caller  the command line: kek rewrap
--   writes  job_secrets, signing_secrets (wrapped key and KEK, never the ciphertext), operator_log
--   raises  22023  arrays that do not fit together, or a place that is none
--           UT011  not read committed
--   answers per place: ok · moved (replaced, gone, or in somebody's hands: list again)
--   see     contract §10; docs/security.md
--
-- It never waits, so it never stands in a deadlock with a worker; whoever waits for it waits for one small batch.
create or replace function euterpe.rewrap_v1(
  p_places      text[],
  p_old_wrapped bytea[],
  p_new_wrapped bytea[],
  p_new_kek_ids text[],
  p_why         text default null
)
returns table (
  place   text,
  outcome text
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ids  uuid[];
  v_held text[];
begin
  perform _insist_read_committed();
  if coalesce(cardinality(p_places), 0) not between 1 and 1000
     or exists (select from unnest(array[cardinality(p_old_wrapped), cardinality(p_new_wrapped), cardinality(p_new_kek_ids)]) l
                 where l is distinct from cardinality(p_places)) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('rewrap_v1: needs arrays of one length, 1 to 1000, got %s', cardinality(p_places));
  end if;
  select array_agg(split_part(p, '/', 2)::uuid) into v_ids from unnest(p_places) p where p like 'job/%';

  with jobs as materialized (
    select format('job/%s/%s', s.job_id, s.purpose) as held
      from job_secrets s
     where s.job_id = any (v_ids)
       and format('job/%s/%s', s.job_id, s.purpose) = any (p_places)
       for no key update skip locked
  ), signing as materialized (
    select format('signing/%s/%s', s.requester_id, s.version) as held
      from signing_secrets s
     where format('signing/%s/%s', s.requester_id, s.version) = any (p_places)
       for no key update skip locked
  )
  select array_agg(h.held) into v_held from (select j.held from jobs j union all select g.held from signing g) h;

  return query
  with asked as materialized (
    select a.place, a.old_wrapped, a.new_wrapped, a.new_kek_id, a.nth
      from unnest(p_places, p_old_wrapped, p_new_wrapped, p_new_kek_ids)
           with ordinality as a (place, old_wrapped, new_wrapped, new_kek_id, nth)
  ), jobs as (
    update job_secrets s
       set storage_creds_dek_wrapped = a.new_wrapped,
           storage_creds_kek_id      = a.new_kek_id
      from asked a
     where s.job_id = any (v_ids)
       and a.place = any (v_held)
       and format('job/%s/%s', s.job_id, s.purpose) = a.place
       and s.storage_creds_dek_wrapped = a.old_wrapped
    returning a.place
  ), signing as (
    update signing_secrets s
       set secret_dek_wrapped = a.new_wrapped,
           secret_kek_id      = a.new_kek_id
      from asked a
     where a.place = any (v_held)
       and format('signing/%s/%s', s.requester_id, s.version) = a.place
       and s.secret_dek_wrapped = a.old_wrapped
    returning a.place
  ), done as materialized (
    select j.place from jobs j union all select g.place from signing g
  ), logged as materialized (
    select _log_act('rewrap', format('%s of %s secrets', (select count(*) from done), cardinality(p_places)), p_why)
  )
  select a.place, case when d.place is null then 'moved' else 'ok' end
    from asked a
    left join done d on d.place = a.place
   cross join logged
   order by a.nth;
end;
$$;

comment on function euterpe.rewrap_v1 is
  'Puts newly wrapped keys in place of those that were listed, where nobody else changed them meanwhile.';
revoke execute on function euterpe.rewrap_v1 from public;
