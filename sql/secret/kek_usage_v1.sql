-- kek_usage_v1: how many secrets each KEK wraps. One that is not named may be thrown away.
--
--   caller  the command line, before and after a rewrap
--   writes  nothing
--   cost    reads all of job_secrets and signing_secrets
--   see     contract §10; docs/security.md
create or replace function euterpe.kek_usage_v1()
returns table (
  kek_id       text,
  purpose      text,
  secret_count bigint
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
as $$
begin
  return query
  select s.storage_creds_kek_id, s.purpose, count(*)
    from job_secrets s
   group by 1, 2
  union all
  select s.secret_kek_id, 'signing', count(*)
    from signing_secrets s
   group by 1
   order by 1, 2;
end;
$$;

comment on function euterpe.kek_usage_v1 is 'How many secrets each KEK wraps, by purpose. Reads all of them.';
revoke execute on function euterpe.kek_usage_v1 from public;
