-- _insist_read_committed: refuse to work on an old snapshot.
--
--   caller  every public function that writes
--   raises  UT011  the transaction is not read committed
--
-- Why: the queue locks first and looks in a later statement. Under repeatable read that later statement
-- would still see the world from before the lock, and hand out a job twice or strand an event.
create or replace function euterpe._insist_read_committed()
returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using
      errcode = 'UT011',
      message = format('the queue needs isolation level read committed, this transaction is %s',
                       current_setting('transaction_isolation')),
      hint    = 'begin isolation level read committed;';
  end if;
end;
$$;

comment on function euterpe._insist_read_committed is 'Raises UT011 unless the transaction is read committed.';
revoke execute on function euterpe._insist_read_committed from public;
