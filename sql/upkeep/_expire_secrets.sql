-- _expire_secrets: storage credentials of jobs that have rested as failed for a day go.
--
--   caller  upkeep_v1
--   writes  secret_expiries (deletes), job_secrets (deletes purpose storage)
--   answers how many jobs' credentials went
--   see     contract §10; design §3
--
-- The row says when to look, the job says what is true: it may have been retried since, and rest again later.
create or replace function euterpe._expire_secrets(
  p_now timestamptz
)
returns bigint
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ctids tid[];
  v_due   uuid[];
  v_held  uuid[];
  v_count bigint;
begin
  with due as materialized (
    select x.ctid as at, x.job_id
      from secret_expiries x
     where x.expires_at <= p_now
     order by x.expires_at
     limit 1000
       for update skip locked
  )
  select array_agg(d.at), array_agg(d.job_id) into v_ctids, v_due from due d;
  if v_due is null then
    return 0;
  end if;

  -- Locked first: a retry under way keeps what it is about to use. Whoever holds a job for long is passed over, and looked
  -- at again next time: all of upkeep would wait for him.
  with locked as materialized (
    select j.job_id from inbox_jobs j where j.job_id = any (v_due) for no key update skip locked
  )
  select coalesce(array_agg(j.job_id), '{}') into v_held
    from inbox_jobs j
   where j.job_id = any (v_due) and j.job_id not in (select l.job_id from locked l);
  delete from secret_expiries x
   using unnest(v_ctids, v_due) as d (at, job_id)
   where x.ctid = d.at and d.job_id <> all (v_held);
  v_due := array(select d.job_id from unnest(v_due) as d (job_id) where d.job_id <> all (v_held));
  delete from job_secrets s
   where s.job_id = any (v_due) and s.purpose = 'storage'
     and s.job_id in (select j.job_id from inbox_jobs j
                       where j.job_id = any (v_due) and j.status = 'failed'
                         and j.finished_at <= p_now - interval '24 hours');
  get diagnostics v_count = row_count;
  return v_count;
end;
$$;

comment on function euterpe._expire_secrets is 'Deletes the storage credentials of jobs that have rested as failed for a day.';
revoke execute on function euterpe._expire_secrets from public;
