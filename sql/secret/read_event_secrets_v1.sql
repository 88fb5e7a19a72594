-- read_event_secrets_v1: the sealed callback of events, for the worker that holds them.
--
--   caller  euterpe-webhook, after a claim
--   writes  nothing
--   raises  22023, UT011  see _insist_event_batch
--   answers one row per event; stale, and nothing in it, when the claim is not the caller's
--   see     contract §10
--
-- Never storage credentials: a webhook worker has no use for them.
create or replace function euterpe.read_event_secrets_v1(
  p_worker_id      text,
  p_job_ids        uuid[],
  p_sequences      integer[],
  p_claim_versions bigint[],
  p_claim_tokens   uuid[]
)
returns table (
  job_id             uuid,
  sequence           integer,
  outcome            text,
  encrypted          bytea,
  dek_wrapped        bytea,
  kek_id             text,
  encryption_version smallint,
  credential_version integer,
  bound_to           uuid
)
language plpgsql
volatile
security definer
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
  perform _insist_event_batch('read_event_secrets_v1', p_job_ids, p_sequences, array[
    cardinality(p_claim_versions), cardinality(p_claim_tokens)]);

  return query
  select s.job_id, s.sequence, case when e.job_id is not null then 'ok' else 'stale' end, x.storage_creds_encrypted,
         x.storage_creds_dek_wrapped, x.storage_creds_kek_id, x.storage_creds_encryption_version,
         x.credential_version, coalesce(x.bound_to, x.job_id)
    from unnest(p_job_ids, p_sequences, p_claim_versions, p_claim_tokens)
         with ordinality as s (job_id, sequence, claim_version, claim_token, nth)
    left join job_outbox_events e
      on e.job_id = any (p_job_ids) and e.job_id = s.job_id and e.sequence = s.sequence
     and e.claim_version = s.claim_version and e.claim_token = s.claim_token and e.worker_id = p_worker_id
    left join job_secrets x on x.job_id = any (p_job_ids) and x.job_id = e.job_id and x.purpose = 'callback'
   order by s.nth;
end;
$$;

comment on function euterpe.read_event_secrets_v1 is
  'The sealed callback of events, for the worker that holds them and for nobody else.';
revoke execute on function euterpe.read_event_secrets_v1 from public;
