-- _insist_batch: what every batch of a worker must look like.
--
--   caller  every function in which a worker speaks of jobs or events it holds
--   raises  22023  arrays of different lengths, empty, longer than 1000, or naming a job twice
--           UT011  not read committed
--
-- A malformed call raises; a single item that is stale or illegal never does, it is answered.
create or replace function euterpe._insist_batch(
  p_caller    text,
  p_job_ids   uuid[],
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
     or exists (select from unnest(p_lengths) l where l is distinct from cardinality(p_job_ids)) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s: needs arrays of one length, 1 to 1000, got %s and %s',
                       p_caller, cardinality(p_job_ids), p_lengths);
  end if;
  if (select count(distinct i) <> cardinality(p_job_ids) from unnest(p_job_ids) i) then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = format('%s: names a job twice, or null', p_caller);
  end if;
end;
$$;

comment on function euterpe._insist_batch is 'Raises 22023 unless the arrays of a batch fit together.';
revoke execute on function euterpe._insist_batch from public;
