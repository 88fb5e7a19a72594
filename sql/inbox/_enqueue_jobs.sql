-- _enqueue_jobs: accept jobs of one requester, idempotently.
--
--   caller  enqueue_job_v1, enqueue_jobs_v1, redrive_job_v1
--   writes  idempotency_keys, inbox_jobs, job_requests, job_secrets, ready or delayed
--   emits   one queued event per accepted job, in the line at once
--   raises  UT005  requester unknown or disabled
--           UT006  no such queue
--           UT007  no partition for the time in the ids
--           23505  a job_id given by the caller is in use
--   answers per item: accepted · replayed (same key, same hash: the stored answer) ·
--           conflict (same key, other hash) · invalid (message says why; no key is used)
--   see     contract §9; design §5.9
--
-- A key is settled by inserting it: a second caller waits for the first and then finds its answer, in a
-- later statement, which sees what the first committed. An expired key is taken over in the same insert.
create or replace function euterpe._enqueue_jobs(
  p_now          timestamptz,
  p_requester_id text,
  p_queue        text,
  p_jobs         euterpe._new_job[]
)
returns table (
  ordinal    integer,
  job_id     uuid,
  outcome    text,
  response   bytea,
  created_at timestamptz,
  message    text
)
language plpgsql
volatile
set search_path = euterpe, pg_temp
as $$
declare
  v_requester  requesters%rowtype;
  v_queue      queues%rowtype;
  v_complaints text[];
  v_jobs       _new_job[];
  v_won        text[];
  v_fresh      _new_job[];
  v_keys       bigint[];
  v_seqs       bigint[];
  v_heads      uuid[];
begin
  select r.* into v_requester from requesters r where r.requester_id = p_requester_id;
  if not found or v_requester.disabled_at is not null then
    raise exception using
      errcode = 'UT005',
      message = format('requester %s is %s', p_requester_id,
                       case when v_requester.requester_id is null then 'unknown' else 'disabled' end);
  end if;
  select q.* into v_queue from queues q where q.name = p_queue and q.holds = 'jobs';
  if not found then
    raise exception using errcode = 'UT006', message = format('there is no queue %s for jobs', p_queue);
  end if;

  v_complaints := array(
    select coalesce(_job_complaint(p_now, p_requester_id, j),
                    case when count(*) over (partition by j.job_id) > 1 and j.job_id is not null
                         then 'job_id is named twice in this call' end)
      from unnest(p_jobs) j
     order by j.ordinal);

  select array_agg((j.ordinal, i.job_id, j.request,
                    least(coalesce(j.priority, 100), v_requester.max_priority),
                    coalesce(j.max_attempts, v_queue.max_attempts),
                    case when j.run_at > p_now then j.run_at end,
                    j.external_id, j.metadata, j.traceparent, j.event_filter, j.callback_origin, j.sealed,
                    j.idempotency_key,
                    coalesce(j.request_hash, sha256(convert_to(j.request::text, 'UTF8'))),
                    case when j.request_hash is null then 0 else coalesce(j.hash_version, 1) end,
                    coalesce(j.response, convert_to(json_build_object('job_id', i.job_id)::text, 'UTF8')),
                    coalesce(j.key_ttl_seconds, 604800), null)::_new_job order by j.ordinal)
    into v_jobs
    from unnest(p_jobs) j
   cross join lateral (select coalesce(j.job_id, _new_id(p_requester_id, p_now)) as job_id) i
   where v_complaints[j.ordinal] is null;

  -- In key order, so that two batches with the same keys wait for each other instead of deadlocking.
  with won as (
    insert into idempotency_keys as k
           (requester_id, idempotency_key, request_hash, hash_version, response, job_id, created_at, expires_at)
    select distinct on (j.idempotency_key)
           p_requester_id, j.idempotency_key, j.request_hash, j.hash_version, j.response, j.job_id,
           p_now, p_now + make_interval(secs => j.key_ttl_seconds)
      from unnest(v_jobs) j
     where j.idempotency_key is not null
     order by j.idempotency_key, j.ordinal
        on conflict on constraint idempotency_keys_pkey do update
       set request_hash = excluded.request_hash, hash_version = excluded.hash_version,
           response = excluded.response, job_id = excluded.job_id,
           created_at = excluded.created_at, expires_at = excluded.expires_at
     where k.expires_at <= p_now
    returning k.idempotency_key
  )
  select array_agg(w.idempotency_key) into v_won from won w;

  select array_agg(f.job order by f.ordinal)
    into v_fresh
    from (select j as job, j.ordinal,
                 j.idempotency_key is null
                 or (j.idempotency_key = any (v_won)
                     and row_number() over (partition by j.idempotency_key order by j.ordinal) = 1) as is_fresh
            from unnest(v_jobs) j) f
   where f.is_fresh;

  if v_fresh is not null then
    -- Ids lie within minutes of each other: one look per week is enough.
    perform _insist_partition(w.job_id)
       from (select distinct on (date_trunc('week', _id_time(f.job_id), 'UTC')) f.job_id from unnest(v_fresh) f) w;

    v_keys := _fair_keys(v_queue.queue_id, v_requester.requester_no,
                         array(select f.priority from unnest(v_fresh) f order by f.ordinal));
    v_seqs := array(select nextval('euterpe_line.seq') from unnest(v_fresh) f);

    insert into inbox_jobs
           (job_id, requester_id, queue_id, external_id, priority, status, max_attempts, line_key, line_seq,
            run_at, last_sequence, head_sequence, credential_version, event_filter, callback_origin, can_refresh,
            created_at, updated_at)
    select f.job_id, p_requester_id, v_queue.queue_id, f.external_id, f.priority, 'queued', f.max_attempts,
           v_keys[f.nth], v_seqs[f.nth], f.run_at, 1,
           case when f.event_filter && array['transcode.*', 'transcode.queued'] then 1 end,
           (coalesce(f.sealed, '{}') ? 'storage')::integer, f.event_filter, f.callback_origin,
           coalesce((f.sealed #>> '{callback,can_refresh}')::boolean, false), _id_time(f.job_id), p_now
      from unnest(v_fresh) with ordinality as f (
             ordinal, job_id, request, priority, max_attempts, run_at, external_id, metadata, traceparent,
             event_filter, callback_origin, sealed, idempotency_key, request_hash, hash_version, response,
             key_ttl_seconds, complaint, nth);

    insert into job_requests (job_id, request, metadata, traceparent)
    select f.job_id, f.request, f.metadata, f.traceparent
      from unnest(v_fresh) f;

    insert into job_secrets
           (job_id, purpose, storage_creds_encrypted, storage_creds_dek_wrapped, storage_creds_kek_id,
            storage_creds_encryption_version, credential_version, sealed_at)
    select f.job_id, s.key, (s.value ->> 'encrypted')::bytea, (s.value ->> 'dek_wrapped')::bytea,
           s.value ->> 'kek_id', (s.value ->> 'encryption_version')::smallint, 1, p_now
      from unnest(v_fresh) f
     cross join lateral jsonb_each(f.sealed) s;

    with told as (
      insert into job_outbox_events as e
             (job_id, sequence, requester_id, type, to_status, claim_version_then, payload, status, callback_origin,
              created_at, finished_at)
      select f.job_id, 1, p_requester_id, 'transcode.queued', 'queued', 0,
             case when w.wanted then _event_payload(p_now, f.job_id, 1, f.external_id, 'queued', null, false, null,
                                                    0, f.metadata, null, null) end,
             case when w.wanted then 'waiting' else 'skipped' end,
             case when w.wanted then f.callback_origin end,
             p_now, case when w.wanted then null else p_now end
        from unnest(v_fresh) f
       cross join lateral (
             select coalesce(f.event_filter && array['transcode.*', 'transcode.queued'], false) as wanted) w
      returning e.job_id, e.status
    )
    select array_agg(t.job_id) into v_heads from told t where t.status = 'waiting';
    if v_heads is not null then
      perform _file_events(v_heads, array_fill(1, array[cardinality(v_heads)]), null, null, true);
    end if;

    perform _put_in_line(array_agg(v_queue.queue_id order by f.ordinal), array_agg(f.job_id order by f.ordinal),
                         array_agg(0), v_keys, v_seqs, array_agg(f.run_at order by f.ordinal))
       from unnest(v_fresh) f;
  end if;

  return query
  select i.ordinal,
         case when i.outcome in ('accepted', 'replayed') then coalesce(k.job_id, j.job_id) end,
         i.outcome,
         case when i.outcome in ('accepted', 'replayed') then coalesce(k.response, j.response) end,
         case when i.outcome in ('accepted', 'replayed') then _id_time(coalesce(k.job_id, j.job_id)) end,
         case i.outcome
           when 'invalid' then v_complaints[i.ordinal]
           when 'conflict' then format('idempotency key was used for another request, that of job %s, whose hash begins with %s',
                                       k.job_id, left(encode(k.request_hash, 'hex'), 8))
         end
    from unnest(p_jobs) p
    left join unnest(v_jobs) j on j.ordinal = p.ordinal
    left join idempotency_keys k
      on k.requester_id = p_requester_id and k.idempotency_key = j.idempotency_key
   cross join lateral (
         select p.ordinal,
                case
                  when v_complaints[p.ordinal] is not null then 'invalid'
                  when exists (select from unnest(v_fresh) f where f.ordinal = p.ordinal) then 'accepted'
                  when (k.request_hash, k.hash_version) = (j.request_hash, j.hash_version) then 'replayed'
                  else 'conflict'
                end as outcome) i
   order by i.ordinal;
end;
$$;

comment on function euterpe._enqueue_jobs is 'Accepts jobs of one requester, idempotently; answers per item.';
revoke execute on function euterpe._enqueue_jobs from public;
