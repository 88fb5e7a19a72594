-- _safe_point: move the point below which a line is certainly empty.
--
--   caller  _tick, after each scan of ready, delayed and leases
--   writes  euterpe_line.q<queue>_<line>_safe, _mark, _mark_xid
--   see     docs/line.md, with the proof
--
-- p_settled  oldest xid that was running in a snapshot from before the scan
-- p_lowest   what the scan proved: nothing that it could see lies below, and whoever takes an xid after this
--            call files nothing below
--
-- A mark says: when everybody with an xid below mark_xid has ended, all entries below the mark are visible.
-- Once that is so, the scan that was just made has seen them, and the safe point may follow. The new mark is
-- written with a snapshot from now, after the scan. mark_xid is written before mark, so that a crash between
-- the two leaves a mark that is trusted too late, never too early.
create or replace function euterpe._safe_point(
  p_queue_id smallint,
  p_line     text,
  p_settled  bigint,
  p_lowest   bigint
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_prefix text   := 'euterpe_line.q' || p_queue_id || '_' || p_line;
  v_mark   bigint := pg_sequence_last_value((v_prefix || '_mark')::regclass);
begin
  if pg_sequence_last_value((v_prefix || '_mark_xid')::regclass) <= p_settled then
    perform setval((v_prefix || '_safe')::regclass, least(v_mark, p_lowest));
    perform setval((v_prefix || '_mark_xid')::regclass,
                   pg_snapshot_xmax(pg_current_snapshot())::text::bigint);
    perform setval((v_prefix || '_mark')::regclass, p_lowest);
  end if;
end;
$$;

comment on function euterpe._safe_point is 'Moves the point below which a line is certainly empty.';
revoke execute on function euterpe._safe_point from public;
