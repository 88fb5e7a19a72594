-- worker_seen_v1: a process says that it is there.
--
--   caller  every service at start and every minute
--   writes  workers
--   see     contract §2
--
-- For people only: no lease depends on it, so a process that cannot say it still works.
create or replace function euterpe.worker_seen_v1(
  p_worker_id text,
  p_kind      text,
  p_release   text,
  p_detail    jsonb default null
)
returns void
language sql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
  insert into workers as w (worker_id, kind, release, started_at, seen_at, detail)
  select p_worker_id, p_kind, p_release, n.at, n.at, p_detail
    from (select _now() as at) n
      on conflict on constraint workers_pkey do update
     set seen_at = excluded.seen_at, stopped_at = null, detail = coalesce(excluded.detail, w.detail)
$$;

comment on function euterpe.worker_seen_v1 is 'A process says that it is there.';
revoke execute on function euterpe.worker_seen_v1 from public;
