-- _move_up: what was delayed for an endpoint need not wait any longer.
--
--   caller  _note_deliveries, when a circuit closes
--   writes  delayed (deletes), ready, through _make_ready
--   see     design §4.6
--
-- Retries as well: they failed because the endpoint was not there. At most 5,000; whatever is left keeps its own time.
create or replace function euterpe._move_up(
  p_endpoint text
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  v_ctids     tid[];
  v_queues    smallint[];
  v_seqs      bigint[];
  v_jobs      uuid[];
  v_sequences integer[];
begin
  for v_round in 1 .. 5 loop
    with due as materialized (
      select d.ctid as at, d.queue_id, d.seq, d.job_id, d.sequence
        from delayed d
       where d.endpoint = p_endpoint
       order by d.endpoint, d.queue_id, d.run_at, d.seq
       limit 1000
         for update skip locked
    )
    select array_agg(u.at), array_agg(u.queue_id), array_agg(u.seq), array_agg(u.job_id), array_agg(u.sequence)
      into v_ctids, v_queues, v_seqs, v_jobs, v_sequences
      from due u;
    exit when v_jobs is null;
    perform _make_ready(v_ctids, v_queues, v_seqs, v_jobs, v_sequences);
  end loop;
end;
$$;

comment on function euterpe._move_up is 'Moves what was delayed for an endpoint to ready.';
revoke execute on function euterpe._move_up from public;
