-- _put_in_line: file entries, now or for later.
--
--   caller  _enqueue_jobs, _end_or_requeue, _file_events, _make_ready, claim_events_v1, _refile_jobs, _refile_events,
--           prioritise_job_v1; the item already carries the same line_seq
--   writes  ready, or delayed when run_at lies ahead
--   see     docs/line.md
--
-- The clock and V are read here, after the xid. The sweep must be able to wait for everybody who may still file
-- an entry by an older V, and it waits for xids (_safe_point). Callers have written something before and so have one
-- already; asking for it makes that sure.
--
-- An item that comes back stands at greatest(V, line_key): it keeps the place of its first key and is not
-- charged twice. For a new item that is its first key itself.
create or replace function euterpe._put_in_line(
  p_queue_ids smallint[],
  p_job_ids   uuid[],
  p_sequences integer[],
  p_line_keys bigint[],
  p_line_seqs bigint[],
  p_run_ats   timestamptz[],
  p_endpoints text[] default null
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
as $$
declare
  v_now      timestamptz;
  v_queues   smallint[];
  v_virtuals bigint[];
begin
  perform pg_current_xact_id();
  v_now := _now();
  select array_agg(q.queue_id), array_agg(_virtual_time(q.queue_id))
    into v_queues, v_virtuals
    from (select distinct u.queue_id from unnest(p_queue_ids) as u (queue_id)) q;

  insert into delayed (queue_id, run_at, seq, job_id, sequence, endpoint)
  select e.queue_id, e.run_at, e.line_seq, e.job_id, e.sequence, e.endpoint
    from unnest(p_queue_ids, p_run_ats, p_line_seqs, p_job_ids, p_sequences, p_endpoints)
         as e (queue_id, run_at, line_seq, job_id, sequence, endpoint)
   where e.run_at > v_now;

  insert into ready (queue_id, shard, key, seq, job_id, sequence)
  select e.queue_id, 0, greatest(v.virtual_time, e.line_key), e.line_seq, e.job_id, e.sequence
    from unnest(p_queue_ids, p_line_keys, p_line_seqs, p_job_ids, p_sequences, p_run_ats)
         as e (queue_id, line_key, line_seq, job_id, sequence, run_at)
    join unnest(v_queues, v_virtuals) as v (queue_id, virtual_time) on v.queue_id = e.queue_id
   where e.run_at is null or e.run_at <= v_now;
end;
$$;

comment on function euterpe._put_in_line is 'Files entries in ready, or in delayed when their time lies ahead.';
revoke execute on function euterpe._put_in_line from public;
