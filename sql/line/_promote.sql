-- _promote: move entries whose time has come from delayed to ready.
--
--   caller  _tick
--   writes  delayed (deletes), ready
--   see     docs/line.md
--
-- The entry keeps its seq, so the item need not be touched: an item cancelled in this moment leaves litter
-- in ready, which the next claim deletes. What is litter already is dropped here.
create or replace function euterpe._promote(
  p_now      timestamptz,
  p_queue_id smallint,
  p_since    timestamptz,
  p_limit    integer
)
returns integer
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_ctids     tid[];
  v_seqs      bigint[];
  v_jobs      uuid[];
  v_sequences integer[];
begin
  with due as materialized (
    select d.ctid as at, d.seq, d.job_id, d.sequence
      from delayed d
     where d.queue_id = p_queue_id
       and d.run_at >= p_since
       and d.run_at <= p_now
     order by d.run_at, d.seq
     limit p_limit
       for update skip locked
  )
  select array_agg(u.at), array_agg(u.seq), array_agg(u.job_id), array_agg(u.sequence)
    into v_ctids, v_seqs, v_jobs, v_sequences
    from due u;
  if v_jobs is null then
    return 0;
  end if;

  delete from delayed d where d.ctid = any (v_ctids);

  perform _put_in_line(array_agg(p_queue_id), array_agg(e.job_id), array_agg(e.sequence),
                       array_agg(i.line_key), array_agg(e.seq), array_agg(null::timestamptz))
     from unnest(v_seqs, v_jobs, v_sequences) as e (seq, job_id, sequence)
     join (select j.job_id, 0 as sequence, j.line_key, j.line_seq
             from inbox_jobs j
            where j.job_id = any (v_jobs)
            union all
           select o.job_id, o.sequence, o.line_key, o.line_seq
             from job_outbox_events o
            where o.job_id = any (v_jobs)) i
       on i.job_id = e.job_id and i.sequence = e.sequence and i.line_seq = e.seq
   having count(*) > 0;

  return cardinality(v_jobs);
end;
$$;

comment on function euterpe._promote is
  'Moves entries whose time has come from delayed to ready, at most p_limit of them.';
revoke execute on function euterpe._promote from public;
