-- _refile_jobs: put back into line and leases what lost its entry.
--
--   caller  euterpe-migrate retain, when it attaches a partition again
--   writes  ready, leases
--   answers how many entries were missing
--
-- While a partition was detached its jobs could not be seen: a claim took their entries for litter, reclaim forgot
-- their leases.
create or replace function euterpe._refile_jobs(
  p_from uuid,
  p_to   uuid
)
returns bigint
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_queued uuid[];
  v_owned  bigint;
begin
  v_queued := array(
    select j.job_id
      from inbox_jobs j
     where j.job_id >= p_from and j.job_id < p_to and j.status = 'queued'
       and not exists (select from ready r where r.seq = j.line_seq)
       and not exists (select from delayed d where d.seq = j.line_seq));
  perform _put_in_line(array_agg(j.queue_id), array_agg(j.job_id), array_agg(0), array_agg(j.line_key),
                       array_agg(j.line_seq), array_agg(j.run_at))
     from inbox_jobs j
    where j.job_id = any (v_queued)
   having count(*) > 0;

  insert into leases (queue_id, due_at, job_id, sequence)
  select j.queue_id, j.lease_expires_at, j.job_id, 0
    from inbox_jobs j
   where j.job_id >= p_from and j.job_id < p_to and j.lease_expires_at is not null
      on conflict on constraint leases_pkey do nothing;
  get diagnostics v_owned = row_count;

  return cardinality(v_queued) + v_owned;
end;
$$;

comment on function euterpe._refile_jobs is
  'Puts back into line and leases what lost its entry while its partition was detached.';
revoke execute on function euterpe._refile_jobs from public;
