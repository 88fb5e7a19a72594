-- _insist_event_batch: what every batch about events must look like.
--
--   caller  every function in which a worker speaks of events it holds
--   raises  22023  arrays of different lengths, empty, longer than 1000, or naming an event twice
--           UT011  not read committed
--
-- As _insist_batch for jobs; here a job may be named twice, by two of its events.
create or replace function euterpe._insist_event_batch(
  p_caller    text,
  p_job_ids   uuid[],
  p_sequences integer[],
  p_lengths   integer[]
)
returns void
language plpgsql
stable
set search_path = euterpe, pg_catalog, pg_temp
as $$
begin
  perform _insist_read_committed();
  if coalesce(cardinality(p_job_ids), 0) not between 1 and 1000
     or exists (select from unnest(p_lengths || cardinality(p_sequences)) l
                 where l is distinct from cardinality(p_job_ids)) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s: needs arrays of one length, 1 to 1000, got %s, %s and %s',
                       p_caller, cardinality(p_job_ids), cardinality(p_sequences), p_lengths);
  end if;
  if (select count(distinct (i.job_id, i.sequence)) filter (where i.job_id is not null and i.sequence is not null)
             <> cardinality(p_job_ids)
        from unnest(p_job_ids, p_sequences) as i (job_id, sequence)) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s: names an event twice, or null', p_caller);
  end if;
end;
$$;

comment on function euterpe._insist_event_batch is 'Raises 22023 unless the arrays of a batch of events fit together.';
revoke execute on function euterpe._insist_event_batch from public;
