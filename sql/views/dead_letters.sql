-- dead_letters: jobs that were given up and that nobody has redriven, newest first.
--
--   reader  euterpe_readonly, euterpe_operator
--   cost    an index of dead letters only: the newest 1,000 of each queue, however many there are
create or replace view euterpe.dead_letters as
select j.job_id,
       j.requester_id                                         as who,
       j.last_error ->> 'code'                                as code,
       euterpe._ago(euterpe._now() - j.finished_at)           as ago
  from euterpe.queues q
 cross join lateral (
       select i.job_id, i.requester_id, i.last_error, i.finished_at
         from euterpe.inbox_jobs i
        where i.queue_id = q.queue_id and i.ended_as = 'dead_letter' and i.redriven_as is null
        order by i.job_id desc
        limit 1000) j
 where q.holds = 'jobs'
 order by j.job_id desc;

comment on view euterpe.dead_letters is
  'Jobs that were given up and not redriven, the newest 1,000 per queue. Redrive with redrive_job_v1, many with steer_jobs_v1.';
comment on column euterpe.dead_letters.job_id is 'The job.';
comment on column euterpe.dead_letters.who is 'Whose job it was.';
comment on column euterpe.dead_letters.code is 'Its last error; error_codes says what it means.';
comment on column euterpe.dead_letters.ago is 'Since when.';
