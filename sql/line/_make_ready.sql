-- _make_ready: move entries from delayed to ready.
--
--   caller  _promote, when their time has come; _move_up, when their endpoint is there again; they have locked the
--           entries
--   writes  delayed (deletes), ready
--   see     docs/line.md
--
-- The entry keeps its seq, so the item need not be touched: an item cancelled in this moment leaves litter
-- in ready, which the next claim deletes. What is litter already is dropped here.
-- One above V: at V itself an old seq would stand below the floor, and wait for the next sweep.
create or replace function euterpe._make_ready(
  p_ctids     tid[],
  p_queue_ids smallint[],
  p_seqs      bigint[],
  p_job_ids   uuid[],
  p_sequences integer[]
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  delete from delayed d where d.ctid = any (p_ctids);

  perform _put_in_line(array_agg(e.queue_id), array_agg(e.job_id), array_agg(e.sequence),
                       array_agg(greatest(i.line_key, _virtual_time(e.queue_id) + 1)), array_agg(e.seq),
                       array_agg(null::timestamptz))
     from unnest(p_queue_ids, p_seqs, p_job_ids, p_sequences) as e (queue_id, seq, job_id, sequence)
     join (select j.job_id, 0 as sequence, j.line_key, j.line_seq
             from inbox_jobs j
            where j.job_id = any (p_job_ids)
            union all
           select o.job_id, o.sequence, o.line_key, o.line_seq
             from job_outbox_events o
            where o.job_id = any (p_job_ids)) i
       on i.job_id = e.job_id and i.sequence = e.sequence and i.line_seq = e.seq
   having count(*) > 0;
end;
$$;

comment on function euterpe._make_ready is 'Moves entries from delayed to ready; drops those that are litter.';
revoke execute on function euterpe._make_ready from public;
