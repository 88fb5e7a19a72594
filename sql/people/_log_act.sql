-- _log_act: write down what a person did.
--
--   caller  every function that an operator calls
--   writes  operator_log; who is session_user, because current_user is the owner in here
create or replace function euterpe._log_act(
  p_act    text,
  p_target text,
  p_why    text,
  p_job_id uuid default null
)
returns void
language sql
volatile
set search_path = euterpe, pg_temp
as $$
  insert into operator_log (at, who, act, target, why, job_id)
  values (_now(), session_user, p_act, p_target, p_why, p_job_id)
$$;

comment on function euterpe._log_act is 'Writes down what a person did: who, what, when, why, to which job.';
revoke execute on function euterpe._log_act from public;
