-- redrive_job_v1: make one new job from one that is given up.
--
--   caller  euterpe-api for its requester; an operator, for any (p_requester_id null)
--   writes  the new job, see _enqueue_jobs; inbox_jobs.redriven_as, redrive_of; job_secrets (the callback is copied)
--   emits   queued, of the new job; dead_letter, of an old one that rested as failed
--   raises  22023  p_sealed without p_new_job_id, or not acceptable
--           23505  p_new_job_id is in use
--           UT002  the old one has not ended, has succeeded, or was redriven before
--           UT004  no such job, or another requester's
--           UT005  requester disabled
--           UT007  no partition for the time in p_new_job_id
--           UT008  it needs credentials, none were given, and none can be asked for
--           UT011  not read committed
--   answers the new job_id
--   see     contract §3: dead_letter is terminal; design §5.5
--
-- A dead letter is absorbing, so it stays what it is and names its successor, once. One that rests as failed is given
-- up first: whoever redrives it has decided that it will not be retried.
-- The request, budget, priority and callback are the old ones. Storage credentials are sealed to a job_id and so cannot
-- be copied; new ones are sealed to p_new_job_id, version 1. The callback keeps the job_id it was sealed to (bound_to).
create or replace function euterpe.redrive_job_v1(
  p_job_id       uuid,
  p_requester_id text  default null,
  p_new_job_id   uuid  default null,
  p_sealed       jsonb default null,
  p_why          text  default null
)
returns uuid
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now     timestamptz;
  v_old     inbox_jobs%rowtype;
  v_request job_requests%rowtype;
  v_new     record;
begin
  perform _insist_read_committed();
  if p_sealed is not null and p_new_job_id is null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'redrive_job_v1: credentials are sealed to a job, so p_sealed needs p_new_job_id';
  end if;
  v_old := _take_job(p_job_id, p_requester_id);
  v_now := _now();
  if v_old.status not in ('failed', 'dead_letter') or v_old.redriven_as is not null then
    raise exception using
      errcode = 'UT002',
      message = case when v_old.redriven_as is not null
                     then format('job %s was redriven already, as %s', p_job_id, v_old.redriven_as)
                     else format('job %s was not given up: %s', p_job_id, v_old.status) end;
  end if;
  if v_old.credential_version > 0 and p_sealed is null and not v_old.can_refresh then
    raise exception using
      errcode = 'UT008',
      message = format('job %s needs credentials; give new ones', p_job_id);
  end if;

  if v_old.status = 'failed' then
    perform _transition(v_now, array[
      (p_job_id, 'dead_letter', null, null, null, null, null, 'redriven', null, null, null, null, null, null)::_step]);
  end if;
  select r.* into strict v_request from job_requests r where r.job_id = p_job_id;
  select e.* into strict v_new
    from _enqueue_jobs(v_now, v_old.requester_id, (select q.name from queues q where q.queue_id = v_old.queue_id), array[
           (1, p_new_job_id, v_request.request, v_old.priority, v_old.max_attempts, null, v_old.external_id,
            v_request.metadata, v_request.traceparent, v_old.event_filter, v_old.callback_origin,
            case when p_sealed is not null then jsonb_build_object('storage', p_sealed) end,
            null, null, null, null, null, null)::_new_job]) e;
  if v_new.outcome <> 'accepted' then
    raise exception using errcode = 'invalid_parameter_value', message = 'redrive_job_v1: ' || v_new.message;
  end if;

  update inbox_jobs j set redriven_as = v_new.job_id where j.job_id = p_job_id;
  update inbox_jobs j
     set redrive_of = p_job_id, can_refresh = v_old.can_refresh
   where j.job_id = v_new.job_id;
  insert into job_secrets
         (job_id, purpose, storage_creds_encrypted, storage_creds_dek_wrapped, storage_creds_kek_id,
          storage_creds_encryption_version, credential_version, sealed_at, bound_to)
  select v_new.job_id, s.purpose, s.storage_creds_encrypted, s.storage_creds_dek_wrapped, s.storage_creds_kek_id,
         s.storage_creds_encryption_version, s.credential_version, s.sealed_at, coalesce(s.bound_to, s.job_id)
    from job_secrets s
   where s.job_id = p_job_id and s.purpose = 'callback';

  if p_requester_id is null then
    perform _log_act('redrive_job', p_job_id::text, p_why, p_job_id);
  end if;
  return v_new.job_id;
end;
$$;

comment on function euterpe.redrive_job_v1 is
  'Makes one new job from a dead letter, or from a failed job that is given up with it.';
revoke execute on function euterpe.redrive_job_v1 from public;
