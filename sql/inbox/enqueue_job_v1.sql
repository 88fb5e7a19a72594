-- enqueue_job_v1: put one job in the inbox, or say again which one it was.
--
--   caller  euterpe-api; an operator in psql, inside a transaction of their own
--   writes  see _enqueue_jobs
--   emits   one queued event
--   raises  22023  the job is not acceptable; the message says why. No key is used
--           23505  p_job_id is in use
--           UT003  the idempotency key was used for another request; detail: first 8 hex digits of its hash
--           UT005  requester unknown or disabled
--           UT006  no such queue
--           UT007  no partition for the time in job_id
--           UT011  not read committed
--   see     contract §6, §9
create or replace function euterpe.enqueue_job_v1(
  p_requester_id    text,
  p_request         jsonb,
  p_job_id          uuid        default null,
  p_queue           text        default 'transcode',
  p_priority        integer     default 100,
  p_max_attempts    integer     default null,
  p_run_at          timestamptz default null,
  p_external_id     text        default null,
  p_metadata        jsonb       default null,
  p_traceparent     text        default null,
  p_event_filter    text[]      default null,
  p_callback_origin text        default null,
  p_sealed          jsonb       default null,
  p_idempotency_key text        default null,
  p_request_hash    bytea       default null,
  p_hash_version    smallint    default null,
  p_response        bytea       default null,
  p_key_ttl_seconds integer     default null
)
returns table (
  job_id     uuid,
  outcome    text,
  response   bytea,
  created_at timestamptz
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
as $$
declare
  v_answer record;
begin
  perform _insist_read_committed();

  select e.* into strict v_answer
    from _enqueue_jobs(_now(), p_requester_id, p_queue, array[
           (1, p_job_id, p_request, p_priority, p_max_attempts, p_run_at, p_external_id, p_metadata,
            p_traceparent, p_event_filter, p_callback_origin, p_sealed, p_idempotency_key, p_request_hash,
            p_hash_version, p_response, p_key_ttl_seconds, null)::_new_job]) e;

  if v_answer.outcome = 'invalid' then
    raise exception using errcode = 'invalid_parameter_value', message = 'enqueue_job_v1: ' || v_answer.message;
  end if;
  if v_answer.outcome = 'conflict' then
    raise exception using errcode = 'UT003', message = v_answer.message, detail = right(v_answer.message, 8);
  end if;

  return query select v_answer.job_id, v_answer.outcome, v_answer.response, v_answer.created_at;
end;
$$;

comment on function euterpe.enqueue_job_v1 is
  'Puts one job in the inbox; with the same idempotency key and hash, answers as the first time.';
revoke execute on function euterpe.enqueue_job_v1 from public;
