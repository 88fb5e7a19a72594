-- _safe_point: move the point below which a line is certainly empty.
--
--   caller  _tick and _sweep, after each scan of delayed, leases and ready
--   writes  euterpe_line.q<queue>_<line>_safe, _mark, _mark_xid
--   see     docs/line.md, with the proof
--
-- p_fresh_xid  the xid of this tick, if it was taken when the tick began; null if the transaction had one before
-- p_settled    oldest xid that was running in a snapshot from before the scan
-- p_lowest     what the scan proved: nothing that it could see lies below, and whoever takes an xid from now on
--              files nothing below
--
-- Three sweeps take part. The first leaves a mark. The second numbers it: its own fresh xid is higher than that of
-- everybody who may still file below the mark. (The xmax of a snapshot would not do: it is one more than the last
-- xid that *ended*, and passes over younger ones that run.) The third, or a later one, finds that all lower xids
-- had ended before its scan, so its scan has seen all there will ever be: the safe point may follow.
-- mark_xid 0 means: not numbered; so does one from the future, which a dump of a busier server may have brought. It
-- is written before the mark, so that a crash between the two leaves a mark that is trusted too late, never too early.
--
-- Cursors stay as they are set when the transaction is rolled back. So nothing may follow from what this transaction
-- itself has deleted: a tick begins its transaction, or leaves the safe points alone (p_fresh_xid is null).
--
-- What lies below the safe point all the same is a broken promise, or a clock that was set back: the safe point goes
-- back to it, so that it is served from now on, and it is counted in q<queue>_strays, which health shows.
create or replace function euterpe._safe_point(
  p_queue_id  smallint,
  p_line      text,
  p_fresh_xid bigint,
  p_settled   bigint,
  p_lowest    bigint
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_prefix   text   := 'euterpe_line.q' || p_queue_id || '_';
  v_line     text   := v_prefix || p_line;
  v_mark     bigint := pg_sequence_last_value((v_line || '_mark')::regclass);
  v_mark_xid bigint := pg_sequence_last_value((v_line || '_mark_xid')::regclass);
begin
  if p_fresh_xid is null then
    return;
  end if;

  if p_lowest < pg_sequence_last_value((v_line || '_safe')::regclass) then
    perform nextval((v_prefix || 'strays')::regclass);
    perform setval((v_line || '_safe')::regclass, p_lowest);
    perform setval((v_line || '_mark_xid')::regclass, 0);
    perform setval((v_line || '_mark')::regclass, p_lowest);
  elsif v_mark_xid = 0 or v_mark_xid > p_fresh_xid then
    perform setval((v_line || '_mark_xid')::regclass, p_fresh_xid);
  elsif v_mark_xid <= p_settled then
    perform setval((v_line || '_safe')::regclass, least(v_mark, p_lowest));
    perform setval((v_line || '_mark_xid')::regclass, 0);
    perform setval((v_line || '_mark')::regclass, p_lowest);
  end if;
end;
$$;

comment on function euterpe._safe_point is 'Moves the point below which a line is certainly empty.';
revoke execute on function euterpe._safe_point from public;
