-- health: what a DBA should worry about; every row with ok = false is an alarm.
--
--   reader  euterpe_readonly, euterpe_operator, monitoring: select * from euterpe.health where not ok
--   cost    see health_v1; a view because people type it
create or replace view euterpe.health as
select h.topic, h.ok, h.says
  from euterpe.health_v1() h
 order by h.ok;

comment on view euterpe.health is 'What a DBA should worry about; every row with ok = false is an alarm.';
comment on column euterpe.health.topic is 'What was looked at.';
comment on column euterpe.health.ok is 'False: look into it.';
comment on column euterpe.health.says is 'What was found.';
