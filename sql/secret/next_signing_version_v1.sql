-- next_signing_version_v1: which version a requester's next signing secret will have.
--
--   caller  the command line, before it seals one: the version is bound into the ciphertext
--   writes  nothing
--   raises  UT004  no such requester
--   see     contract §8; design §5.11
create or replace function euterpe.next_signing_version_v1(
  p_requester_id text
)
returns integer
language plpgsql
stable
security definer
set search_path = euterpe, pg_temp
as $$
begin
  if not exists (select from requesters r where r.requester_id = p_requester_id) then
    raise exception using errcode = 'UT004', message = format('there is no requester %s', p_requester_id);
  end if;
  return (select coalesce(max(s.version), 0) + 1 from signing_secrets s where s.requester_id = p_requester_id);
end;
$$;

comment on function euterpe.next_signing_version_v1 is 'Which version a requester''s next signing secret will have.';
revoke execute on function euterpe.next_signing_version_v1 from public;
