-- queue_depths_v1: how full each line was when it was last sampled.
--
--   caller  every service, for its metrics
--   writes  nothing
--   cost    the newest sample of each queue
create or replace function euterpe.queue_depths_v1()
returns table (
  queue               text,
  ready_count         bigint,
  delayed_count       bigint,
  leased_count        bigint,
  oldest_ready_age_ms bigint,
  is_paused           boolean
)
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
as $$
begin
  return query
  select q.name, s.ready_count, s.delayed_count, s.leased_count, s.oldest_ready_age_ms, q.paused_at is not null
    from queues q
    join lateral (
         select x.ready_count, x.delayed_count, x.leased_count, x.oldest_ready_age_ms
           from queue_samples x
          where x.queue_id = q.queue_id
          order by x.sampled_at desc
          limit 1) s on true
   order by q.queue_id;
end;
$$;

comment on function euterpe.queue_depths_v1 is 'How full each line was when it was last sampled.';
revoke execute on function euterpe.queue_depths_v1 from public;
