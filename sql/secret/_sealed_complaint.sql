-- _sealed_complaint: what is wrong with a sealed secret as a caller brings it; null when nothing is.
--
--   caller  _job_complaint, _store_credentials, add_signing_secret_v1
--   see     contract §10
--
-- {"encrypted": "\x…", "dek_wrapped": "\x…", "kek_id": "…", "encryption_version": 1}: sealed before SQL sees it.
create or replace function euterpe._sealed_complaint(
  p_sealed jsonb
)
returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(p_sealed) is distinct from 'object'
     or coalesce(p_sealed ->> 'encrypted', '') !~ '^\\x([0-9a-f]{2})+$'
     or length(p_sealed ->> 'encrypted') > 131074
     or coalesce(p_sealed ->> 'dek_wrapped', '') !~ '^\\x([0-9a-f]{2})+$'
     or length(p_sealed ->> 'dek_wrapped') > 2050
     or coalesce(length(p_sealed ->> 'kek_id'), 0) not between 1 and 64
     or coalesce(p_sealed ->> 'encryption_version', '') !~ '^[0-9]{1,4}$' then
    return 'a sealed secret has encrypted, dek_wrapped (\x…), kek_id and encryption_version';
  end if;
  return null;
end;
$$;

comment on function euterpe._sealed_complaint is 'What is wrong with a sealed secret; null when nothing is.';
revoke execute on function euterpe._sealed_complaint from public;
