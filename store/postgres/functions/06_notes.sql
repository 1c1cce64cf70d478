-- Stores what handlers recorded in attempts whose leases are open. This is checked again once the rows of the notes are
-- locked. A call must not wait for a user's transaction, which may hold the note of a task that it ends. If a note is
-- held, or if an attempt has ended in the meantime, all notes are stored one by one. Returns the places of those that
-- were not stored because they are held.
create function tusk_fn.write_notes(_ids uuid[], _tokens uuid[], _progress text[], _outputs bytea[], _logs text[])
returns int[] language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '20ms' as $$
declare
  _held    int[] := '{}';
  _begun   timestamptz := clock_timestamp();
  _last    int;
  _written uuid[];
begin
  for i in 0 .. cardinality(_ids) loop -- 0 stands for all of them
    begin
      if i > 0 and clock_timestamp() - _begun > interval '300 ms' then
        raise lock_not_available;
      end if;
      _last := case when i > 0 then i else cardinality(_ids) end;
      with written as (
        insert into tusk.note as o (id, progress, output, logs)
        select x.id, x.progress::jsonb, x.output, x.logs::jsonb
        from unnest(_ids[i : _last], _tokens[i : _last], _progress[i : _last], _outputs[i : _last], _logs[i : _last])
          x(id, token, progress, output, logs)
        where (x.token, x.id) in ( -- each lease is read once, not once per note
          select r.token, r.id from tusk_fn.running r where r.token = any(_tokens[i : _last]) offset 0)
        on conflict (id) do update
        set progress = coalesce(excluded.progress, o.progress), output = coalesce(excluded.output, o.output),
          logs = case when excluded.logs is null then o.logs else coalesce(o.logs, '[]') || excluded.logs end
        returning o.id)
      select array_agg(w.id) into _written from written w;
      if exists (
        select from unnest(_ids[i : _last], _tokens[i : _last]) x(id, token)
        where x.id = any(_written)
          and (x.token, x.id) not in (
            select r.token, r.id from tusk_fn.running r where r.token = any(_tokens[i : _last]) offset 0)) then
        raise lock_not_available;
      end if;
      exit when i = 0;
    exception when lock_not_available then
      _held := case when i > 0 then _held || i else _held end;
    end;
  end loop;
  return _held;
end $$;
