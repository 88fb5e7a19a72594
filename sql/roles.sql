-- roles.sql: the group roles of Euterpe. Run by euterpe-migrate where it may create roles; elsewhere it prints
-- this for a DBA to run. Roles belong to the cluster, not to a database; harmless when run again.
--
-- Timeouts are settings of the role that logs in: they hold for these roles themselves (alter role euterpe_api
-- login password '…'); a login role of your own that is only a member needs them again.

do $$
declare
  v_role text;
begin
  foreach v_role in array array['euterpe_owner', 'euterpe_api', 'euterpe_transcode', 'euterpe_webhook',
                                'euterpe_operator', 'euterpe_readonly']
  loop
    if not exists (select from pg_roles r where r.rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
      exception when duplicate_object or unique_violation then
        null; -- made at the same moment from another database of this cluster
      end;
    end if;
  end loop;

  -- So that health can say since when somebody holds the oldest snapshot. Not everybody may grant it.
  begin
    grant pg_read_all_stats to euterpe_owner;
  exception when insufficient_privilege then
    raise notice 'health cannot say since when a snapshot is held: grant pg_read_all_stats to euterpe_owner';
  end;

  -- A claim or a heartbeat takes milliseconds; whoever waits longer should be told so and try again.
  foreach v_role in array array['euterpe_api', 'euterpe_transcode', 'euterpe_webhook'] loop
    execute format('alter role %I set statement_timeout = ''10s''', v_role);
    execute format('alter role %I set lock_timeout = ''5s''', v_role);
    execute format('alter role %I set idle_in_transaction_session_timeout = ''10s''', v_role);
  end loop;
  -- People look around; but nobody may hold a snapshot open by accident.
  foreach v_role in array array['euterpe_operator', 'euterpe_readonly'] loop
    execute format('alter role %I set statement_timeout = ''60s''', v_role);
    execute format('alter role %I set lock_timeout = ''5s''', v_role);
    execute format('alter role %I set idle_in_transaction_session_timeout = ''60s''', v_role);
  end loop;
end;
$$;
