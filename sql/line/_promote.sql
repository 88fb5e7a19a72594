-- _promote: move entries whose time has come from delayed to ready.
--
--   caller  _tick
--   writes  delayed (deletes), ready, through _make_ready
--   see     docs/line.md
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

  perform _make_ready(v_ctids, array_fill(p_queue_id, array[cardinality(v_jobs)]), v_seqs, v_jobs, v_sequences);

  return cardinality(v_jobs);
end;
$$;

comment on function euterpe._promote is
  'Moves entries whose time has come from delayed to ready, at most p_limit of them.';
revoke execute on function euterpe._promote from public;
