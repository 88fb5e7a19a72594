-- _sweep: move virtual time and the floor of a line.
--
--   caller  _tick, under the line's try-lock: nobody else writes V, floor or safe
--   writes  euterpe_line.q<queue>_virtual, _floor, _floor_seq, _ready_safe, _ready_mark, _ready_mark_xid
--   see     docs/line.md, with the proof
--
-- V follows what was taken, but never passes the lowest key that still waits; when nothing waits it steps past
-- what was taken. The floor, where claims begin to look, is the lowest place that is there or may still come; it
-- is a hint: a transaction that read an older V and commits late may file below it, and the next sweep finds its
-- entry, because the sweep itself begins at the safe point. p_whole ignores even that.
--
-- The floor has a seq as well: many items may share one key (all that come back stand at V), and the dead among
-- them must not be waded through. Seqs rise, so what comes later to the same key lies above. The seq is written
-- before the key and read after it: who reads a new key never reads an old seq with it.
create or replace function euterpe._sweep(
  p_queue_id  smallint,
  p_fresh_xid bigint,
  p_settled   bigint,
  p_whole     boolean
)
returns void
language plpgsql
volatile
set search_path = euterpe, pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  v_prefix  text   := 'euterpe_line.q' || p_queue_id || '_';
  v_virtual bigint := _virtual_time(p_queue_id);
  v_since   bigint := case when p_whole then 0
                           else pg_sequence_last_value((v_prefix || 'ready_safe')::regclass) end;
  v_lowest  bigint;
  v_seq     bigint;
  v_next    bigint := pg_sequence_last_value('euterpe_line.seq');
begin
  select r.key, r.seq into v_lowest, v_seq
    from ready r
   where r.queue_id = p_queue_id and r.shard = 0
     and r.key >= v_since
   order by r.key, r.seq
   limit 1;
  -- least() passes over a null: with nothing in the line, V is one more than what was taken.
  v_virtual := greatest(v_virtual, least(v_lowest, pg_sequence_last_value((v_prefix || 'taken')::regclass)
                                                   + (v_lowest is null)::integer));
  perform setval((v_prefix || 'virtual')::regclass, v_virtual);
  perform setval((v_prefix || 'floor_seq')::regclass,
                 case when v_lowest <= v_virtual then v_seq else coalesce(v_next, 0) end);
  perform setval((v_prefix || 'floor')::regclass, least(v_lowest, v_virtual));
  perform _safe_point(p_queue_id, 'ready', p_fresh_xid, p_settled, least(v_lowest, v_virtual));
end;
$$;

comment on function euterpe._sweep is 'Moves virtual time, floor and safe point of a line.';
revoke execute on function euterpe._sweep from public;
