-- _ago: a length of time as people say it: 12s, 3m 05s, 4h 10m, 2d 03h.
--
--   caller  every view and every function that speaks to people; readers may call it, because views run functions with
--           their rights
create or replace function euterpe._ago(
  p_length interval
)
returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_seconds bigint := extract(epoch from p_length);
begin
  return case
    when v_seconds is null  then null
    when v_seconds < 0      then '0s'
    when v_seconds < 60     then v_seconds || 's'
    when v_seconds < 3600   then v_seconds / 60 || 'm ' || lpad((v_seconds % 60)::text, 2, '0') || 's'
    when v_seconds < 86400  then v_seconds / 3600 || 'h ' || lpad((v_seconds % 3600 / 60)::text, 2, '0') || 'm'
    else v_seconds / 86400 || 'd ' || lpad((v_seconds % 86400 / 3600)::text, 2, '0') || 'h'
  end;
end;
$$;

comment on function euterpe._ago is 'A length of time as people say it: 12s, 3m 05s, 4h 10m, 2d 03h.';
revoke execute on function euterpe._ago from public;
