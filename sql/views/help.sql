-- help: what you may look at and do here, for whoever starts from nothing.
--
--   reader  euterpe_readonly, euterpe_operator: table euterpe.help
--   cost    the catalog
--
-- Only what the reader may do: a view is no promise of rights. Comments are cut; \dv+ and \df+ have the whole.
create or replace view euterpe.help as
select h.kind, h.name, case when length(h.says) > 44 then left(h.says, 43) || '…' else h.says end as says
  from (select 'view' as kind, c.relname::text as name, obj_description(c.oid, 'pg_class') as says
          from pg_catalog.pg_class c
         where c.relnamespace = 'euterpe'::regnamespace and c.relkind in ('v', 'r')
           and has_table_privilege(c.oid, 'select')
         union all
        select 'call', p.proname::text, obj_description(p.oid, 'pg_proc')
          from pg_catalog.pg_proc p
         where p.pronamespace = 'euterpe'::regnamespace and p.proname not like '\_%'
           and has_function_privilege(p.oid, 'execute')) h
 order by h.kind desc, h.name;

comment on view euterpe.help is 'What you may look at and do here; \dv+ and \df+ of a name say more.';
comment on column euterpe.help.kind is 'view: select from it. call: select * from it(…).';
comment on column euterpe.help.name is 'Its name, in schema euterpe.';
comment on column euterpe.help.says is 'What it is for, cut to fit a terminal.';
