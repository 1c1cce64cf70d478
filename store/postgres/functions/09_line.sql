-- Truncates a table of lines from which all tasks have gone. It runs with the rights of the owner, since no other role
-- may truncate. It gives up if a transaction that uses the table stays open, because all others queue up behind it.
create function tusk_fn.empty_line(_term bigint, _no int) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '50ms'
as $$
begin
  perform tusk_fn.need_read_committed(); -- a row that was committed before the lock is seen
  perform tusk_fn.hold_lead(_term);
  if _no = 1 then
    lock table tusk.line_1 in access exclusive mode;
    if not exists (select from tusk.line_1) then
      truncate tusk.line_1;
    end if;
  else
    lock table tusk.line_2 in access exclusive mode;
    if not exists (select from tusk.line_2) then
      truncate tusk.line_2;
    end if;
  end if;
end $$;
