-- _event_payload: the body of a webhook, as it will be signed and sent.
--
--   caller  _transition, _enqueue_jobs
--   see     contract §8; design §6
--
-- Text, made once and never serialized again: what is signed is what was stored. outputs and error are
-- there only for the events that carry them, so they are appended before the closing brace.
create or replace function euterpe._event_payload(
  p_at              timestamptz,
  p_job_id          uuid,
  p_sequence        integer,
  p_external_id     text,
  p_status          text,
  p_previous_status text,
  p_final           boolean,
  p_reason          text,
  p_attempt_count   integer,
  p_metadata        jsonb,
  p_outputs         jsonb,
  p_error           jsonb
)
returns text
language plpgsql
immutable
set search_path = euterpe, pg_catalog, pg_temp
as $$
begin
  return json_build_object(
           'type',      'transcode.' || p_status,
           'timestamp', _utc(p_at),
           'event_id',  'evt_' || replace(p_job_id::text, '-', '') || '_' || p_sequence,
           'sequence',  p_sequence,
           'data',      (left(json_build_object(
                           'job_id',          p_job_id,
                           'external_id',     p_external_id,
                           'status',          p_status,
                           'previous_status', p_previous_status,
                           'final',           p_final,
                           'reason',          p_reason,
                           'attempt_count',   p_attempt_count,
                           'metadata',        coalesce(p_metadata, '{}'))::text, -1)
                         || case when p_status = 'succeeded'
                                 then ', "outputs" : ' || coalesce(p_outputs, '[]')::text else '' end
                         || case when p_status in ('failed', 'dead_letter')
                                 then ', "error" : ' || coalesce(p_error, 'null')::text else '' end
                         || '}')::json)::text;
end;
$$;

comment on function euterpe._event_payload is 'The body of a webhook, byte for byte as it is signed and sent.';
revoke execute on function euterpe._event_payload from public;
