-- Reads the rows that V0007's constraints were put over, without locking anybody out.

alter table euterpe.inbox_jobs validate constraint inbox_jobs_head_is_an_event;
alter table euterpe.inbox_jobs validate constraint inbox_jobs_callback_trouble_known;
alter table euterpe.job_outbox_events validate constraint job_outbox_events_attempts_within_budget;
