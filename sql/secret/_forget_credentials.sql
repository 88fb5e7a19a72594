-- _forget_credentials: storage credentials go when nobody will need them again.
--
--   caller  _transition, which holds the jobs' row locks
--   writes  job_secrets (deletes purpose storage), secret_expiries
--   see     contract §10; design §3
--
-- At once when the job has ended for good; a day later when it rests and may be retried by hand. The sealed callback
-- stays with its partition: events are still to be delivered, and may be asked for again.
create or replace function euterpe._forget_credentials(
  p_now     timestamptz,
  p_ended   uuid[],
  p_resting uuid[]
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  if p_ended is not null then
    delete from job_secrets s
     where s.job_id = any (p_ended) and s.purpose = 'storage';
  end if;
  if p_resting is not null then
    insert into secret_expiries (expires_at, job_id)
    select p_now + interval '24 hours', r.job_id
      from unnest(p_resting) as r (job_id)
        on conflict on constraint secret_expiries_pkey do nothing;
  end if;
end;
$$;

comment on function euterpe._forget_credentials is
  'Deletes the storage credentials of jobs that ended, and notes when to look at those that rest.';
revoke execute on function euterpe._forget_credentials from public;
