-- _sort_event_entries: which of these entries of the line may be taken, which are litter, which are held by somebody.
--
--   caller  claim_events_v1, which has locked the entries
--   locks   job_outbox_events, for no key update skip locked
--   answers one verdict per entry, in the order given: mine · litter · held
--   see     docs/line.md; _sort_entries does the same for jobs
create or replace function euterpe._sort_event_entries(
  p_job_ids   uuid[],
  p_sequences integer[],
  p_seqs      bigint[]
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
    select o.job_id, o.sequence, o.line_seq
      from job_outbox_events o
     where o.job_id = any (p_job_ids)
       and o.line_seq = any (p_seqs)
       for no key update skip locked
  )
  select array_agg(case when l.line_seq = e.seq then 'mine' end order by e.nth)
    into v_verdicts
    from unnest(p_job_ids, p_sequences, p_seqs) with ordinality as e (job_id, sequence, seq, nth)
    left join locked l on l.job_id = e.job_id and l.sequence = e.sequence;

  if array_position(v_verdicts, null) is not null then
    select array_agg(coalesce(v.verdict, case when o.line_seq = e.seq then 'held' else 'litter' end) order by e.nth)
      into v_verdicts
      from unnest(p_job_ids, p_sequences, p_seqs) with ordinality as e (job_id, sequence, seq, nth)
      join unnest(v_verdicts) with ordinality as v (verdict, nth) on v.nth = e.nth
      left join (select i.job_id, i.sequence, i.line_seq from job_outbox_events i where i.job_id = any (p_job_ids)) o
        on o.job_id = e.job_id and o.sequence = e.sequence;
  end if;

  return v_verdicts;
end;
$$;

comment on function euterpe._sort_event_entries is
  'Locks the events of entries of the line and says of each entry whether it is mine, litter or held by somebody.';
revoke execute on function euterpe._sort_event_entries from public;
