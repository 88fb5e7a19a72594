-- _store_credentials: replace the storage credentials of a job, if nobody else did meanwhile.
--
--   caller  replace_credentials_v1, retry_job_v1, store_refreshed_v1; they hold the job's row lock
--   writes  job_secrets (purpose storage), inbox_jobs.credential_version + 1
--   raises  22023  p_sealed is no sealed secret
--           UT009  credential_version is not the expected one any more
--   answers the new credential_version
--   see     contract §7, §10
--
-- The version is bound into the ciphertext, so whoever sealed it must know it beforehand: expected + 1.
create or replace function euterpe._store_credentials(
  p_now              timestamptz,
  p_job_id           uuid,
  p_expected_version integer,
  p_sealed           jsonb
)
returns integer
language plpgsql
volatile
set search_path = euterpe, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  v_version integer;
begin
  if _sealed_complaint(p_sealed) is not null then
    raise exception using errcode = 'invalid_parameter_value', message = _sealed_complaint(p_sealed);
  end if;
  select j.credential_version into strict v_version from inbox_jobs j where j.job_id = p_job_id;
  if v_version is distinct from p_expected_version then
    raise exception using
      errcode = 'UT009',
      message = format('credential_version is %s, not %s', v_version, p_expected_version);
  end if;

  insert into job_secrets as s
         (job_id, purpose, storage_creds_encrypted, storage_creds_dek_wrapped, storage_creds_kek_id,
          storage_creds_encryption_version, credential_version, sealed_at)
  values (p_job_id, 'storage', (p_sealed ->> 'encrypted')::bytea, (p_sealed ->> 'dek_wrapped')::bytea,
          p_sealed ->> 'kek_id', (p_sealed ->> 'encryption_version')::smallint, v_version + 1, p_now)
      on conflict on constraint job_secrets_pkey do update
     set storage_creds_encrypted          = excluded.storage_creds_encrypted,
         storage_creds_dek_wrapped        = excluded.storage_creds_dek_wrapped,
         storage_creds_kek_id             = excluded.storage_creds_kek_id,
         storage_creds_encryption_version = excluded.storage_creds_encryption_version,
         credential_version               = excluded.credential_version,
         sealed_at                        = excluded.sealed_at;
  update inbox_jobs j
     set credential_version = v_version + 1
   where j.job_id = p_job_id;
  return v_version + 1;
end;
$$;

comment on function euterpe._store_credentials is
  'Replaces the storage credentials of a job if their version is the expected one.';
revoke execute on function euterpe._store_credentials from public;
