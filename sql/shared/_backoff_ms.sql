-- _backoff_ms: how long to wait before attempt p_attempt + 1.
--
--   caller  fail_jobs_v1, settle_events_v1
--   see     contract §5: exponential, with jitter
--
-- min(cap, base · factor^(p_attempt - 1)), then ±20 % by p_random in [0, 1). The random number is an
-- argument: a statement never calls for one itself, and tests can ask for the ends of the range.
create or replace function euterpe._backoff_ms(
  p_base_ms bigint,
  p_factor  integer,
  p_cap_ms  bigint,
  p_attempt integer,
  p_random  double precision
)
returns bigint
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  -- 64 doublings are more than any cap; the exponent is bounded so that power() cannot overflow.
  return round(least(p_cap_ms, p_base_ms * power(p_factor::double precision, least(greatest(p_attempt, 1) - 1, 64)))
               * (0.8 + 0.4 * p_random))::bigint;
end;
$$;

comment on function euterpe._backoff_ms is 'Exponential backoff in milliseconds, capped, with ±20 % jitter.';
revoke execute on function euterpe._backoff_ms from public;
