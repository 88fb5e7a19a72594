-- seed.sql: what every database has. Run by euterpe-migrate after the functions; harmless when run again.

-- Jobs back off 2 s, 4 s, … up to 10 min; events 5 s, 15 s, … up to 6 h, ten attempts in all (design §5.7).
select queue_id, created from euterpe.create_queue_v1('transcode');
select queue_id, created
  from euterpe.create_queue_v1('webhook', 'events', p_max_attempts => 10, p_backoff_base_ms => 5000,
                               p_backoff_factor => 3, p_backoff_cap_ms => 21600000);
select queue_id, created
  from euterpe.create_queue_v1('webhook_retry', 'events', p_max_attempts => 10, p_backoff_base_ms => 5000,
                               p_backoff_factor => 3, p_backoff_cap_ms => 21600000);

select did, row_count from euterpe.upkeep_v1();
