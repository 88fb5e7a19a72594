-- _job_complaint: what is wrong with a job that somebody wants to enqueue; null when nothing is.
--
--   caller  _enqueue_jobs, for each item, before anything is written or a key is used
--   see     design §3, §6
--
-- Plain ifs: an expression without a query in it costs next to nothing, one with a query starts the executor. Those
-- that need one come last, and only for what is there.
create or replace function euterpe._job_complaint(
  p_now          timestamptz,
  p_requester_id text,
  p_job          euterpe._new_job
)
returns text
language plpgsql
stable
set search_path = euterpe, pg_temp
as $$
begin
  if p_job.complaint is not null then
    return p_job.complaint;
  elsif jsonb_typeof(p_job.request) is distinct from 'object' then
    return 'request must be a JSON object';
  elsif p_job.priority not between 0 and 1000 then
    return format('priority %s must be in 0..1000', p_job.priority);
  elsif p_job.max_attempts not between 1 and 100 then
    return format('max_attempts %s must be in 1..100', p_job.max_attempts);
  elsif p_job.run_at > p_now + interval '30 days' then
    return 'run_at may lie at most 30 days ahead';
  elsif length(p_job.external_id) not between 1 and 255 then
    return 'external_id must have 1 to 255 characters';
  elsif length(p_job.traceparent) > 255 then
    return 'traceparent may have at most 255 characters';
  elsif cardinality(p_job.event_filter) > 20 or octet_length(p_job.event_filter::text) > 2000 then
    return 'event_filter may name at most 20 event types';
  elsif length(p_job.callback_origin) > 300 then
    return 'callback_origin may have at most 300 characters';
  elsif p_job.idempotency_key !~ '^[\x21-\x7e]{1,255}$' then
    return 'idempotency_key must be 1 to 255 visible ASCII characters';
  elsif length(p_job.request_hash) <> 32 then
    return 'request_hash must be the 32 bytes of a SHA-256';
  elsif length(p_job.response) > 65536 then
    return 'response may have at most 64 KiB';
  elsif p_job.key_ttl_seconds not between 259200 and 7776000 then
    return format('key_ttl_seconds %s must be in 259200..7776000 (3 to 90 days)', p_job.key_ttl_seconds);
  end if;

  if p_job.job_id is not null then
    if substr(p_job.job_id::text, 15, 1) <> '7' then
      return 'job_id must be a UUIDv7';
    elsif get_byte(uuid_send(p_job.job_id), 15) <> _bucket(p_requester_id) then
      return format('the last byte of job_id must be %s, the bucket of requester %s',
                    to_hex(_bucket(p_requester_id)), p_requester_id);
    elsif abs(extract(epoch from _id_time(p_job.job_id) - p_now)) > 600
      and not exists (select from idempotency_keys k -- a replay is answered however late it comes
                       where k.requester_id = p_requester_id and k.idempotency_key = p_job.idempotency_key
                         and k.expires_at > p_now) then
      return 'the time in job_id must be within 10 minutes of the database''s clock';
    end if;
  end if;

  if p_job.metadata is not null then
    if jsonb_typeof(p_job.metadata) <> 'object' then
      return 'metadata must be a JSON object';
    elsif (select count(*) > 16 from jsonb_object_keys(p_job.metadata))
       or exists (select from jsonb_each_text(p_job.metadata) m
                   where octet_length(m.key) > 256 or octet_length(m.value) > 256) then
      return 'metadata may have at most 16 keys of at most 256 bytes each, keys and values alike';
    end if;
  end if;

  if p_job.sealed is not null then
    if jsonb_typeof(p_job.sealed) <> 'object'
      or exists (select from jsonb_each(p_job.sealed) s
                  where s.key not in ('storage', 'callback') or _sealed_complaint(s.value) is not null
                     or jsonb_typeof(coalesce(s.value -> 'can_refresh', 'true')) <> 'boolean') then
      return 'sealed must hold storage and callback, each with encrypted, dek_wrapped (\x…), kek_id, encryption_version';
    end if;
  end if;

  return null;
end;
$$;

comment on function euterpe._job_complaint is 'What is wrong with a job to be enqueued; null when nothing is.';
revoke execute on function euterpe._job_complaint from public;
