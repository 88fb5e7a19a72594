-- _pick_entries: lock the next entries of a line, passing over those that others hold.
--
--   caller  claim_jobs_v1, claim_events_v1
--   locks   ready, for update skip locked
--   see     docs/line.md
--
-- One range of the primary key, from (p_key, p_seq) on; nothing is joined, nothing is sorted. The planner is
-- forbidden to think otherwise: a plan made while the line was empty may be used when it holds a million.
create or replace function euterpe._pick_entries(
  p_queue_id smallint,
  p_key      bigint,
  p_seq      bigint,
  p_limit    integer
)
returns table (
  at       tid,
  key      bigint,
  seq      bigint,
  job_id   uuid,
  sequence integer
)
language plpgsql
volatile
set search_path = euterpe, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
begin
  return query
  select r.ctid, r.key, r.seq, r.job_id, r.sequence
    from ready r
   where r.queue_id = p_queue_id
     and r.shard = 0
     and r.key >= p_key
     and (r.key, r.seq) > (p_key, p_seq)
   order by r.key, r.seq
   limit p_limit
     for update skip locked;
end;
$$;

comment on function euterpe._pick_entries is 'Locks the next entries of a line, passing over those that others hold.';
revoke execute on function euterpe._pick_entries from public;
