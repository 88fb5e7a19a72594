-- _sort_entries: which of these entries of the line may be taken, which are litter, which are held by somebody.
--
--   caller  claim_jobs_v1, which has locked the entries
--   locks   inbox_jobs, for no key update skip locked
--   answers one verdict per entry, in the order given: mine · litter · held
--   see     docs/line.md
--
-- An entry and the job's line_seq are written in one transaction, so a visible entry was valid once; when the
-- job's line_seq is another one now, it is litter for ever. The plain look comes in a later statement than the
-- lock, and only when some job could not be locked or did not match.
create or replace function euterpe._sort_entries(
  p_job_ids uuid[],
  p_seqs    bigint[]
)
returns text[]
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_verdicts text[];
begin
  with locked as materialized (
    select j.job_id, j.line_seq
      from inbox_jobs j
     where j.job_id = any (p_job_ids)
       for no key update skip locked
  )
  select array_agg(case when l.line_seq = e.seq then 'mine' end order by e.nth)
    into v_verdicts
    from unnest(p_job_ids, p_seqs) with ordinality as e (job_id, seq, nth)
    left join locked l on l.job_id = e.job_id;

  if array_position(v_verdicts, null) is not null then
    select array_agg(coalesce(v.verdict, case when j.line_seq = e.seq then 'held' else 'litter' end) order by e.nth)
      into v_verdicts
      from unnest(p_job_ids, p_seqs) with ordinality as e (job_id, seq, nth)
      join unnest(v_verdicts) with ordinality as v (verdict, nth) on v.nth = e.nth
      left join (select i.job_id, i.line_seq from inbox_jobs i where i.job_id = any (p_job_ids)) j
        on j.job_id = e.job_id;
  end if;

  return v_verdicts;
end;
$$;

comment on function euterpe._sort_entries is
  'Locks the jobs of entries of the line and says of each entry whether it is mine, litter or held by somebody.';
revoke execute on function euterpe._sort_entries from public;
