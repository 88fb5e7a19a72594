-- job_timeline: what happened to a job: its transitions, and what people did to it.
--
--   reader  euterpe_readonly, euterpe_operator: select * from euterpe.job_timeline where job_id = '…' order by at, sequence
--   cost    two index ranges per job; always give a job_id
create or replace view euterpe.job_timeline as
select e.job_id,
       e.sequence,
       e.created_at                                              as at,
       coalesce(e.from_status || ' -> ', '') || e.to_status      as step,
       e.reason,
       e.claim_version_then                                      as claim_version,
       e.worker_id_then                                          as worker_id,
       e.status                                                  as delivery,
       e.attempt_count                                           as delivery_attempts
  from euterpe.job_outbox_events e
union all
select a.job_id,
       null,
       a.at,
       a.act,
       a.why,
       null,
       a.who,
       null,
       null
  from euterpe.operator_log a
 where a.job_id is not null;

comment on view euterpe.job_timeline is
  'What happened to a job: its transitions, and what people did to it. Always give a job_id; order by at, sequence.';
comment on column euterpe.job_timeline.job_id is 'The job.';
comment on column euterpe.job_timeline.sequence is 'Number of the event; null: what a person did.';
comment on column euterpe.job_timeline.at is 'When.';
comment on column euterpe.job_timeline.step is 'From which status to which; or what the person did.';
comment on column euterpe.job_timeline.reason is 'Why, when there is more to say.';
comment on column euterpe.job_timeline.claim_version is 'Which claim.';
comment on column euterpe.job_timeline.worker_id is 'Who owned the job in the transition; or who the person was.';
comment on column euterpe.job_timeline.delivery is
  'How far its webhook is: waiting, ready, claimed, delivered, dead_letter, skipped.';
comment on column euterpe.job_timeline.delivery_attempts is 'How often that was tried.';
