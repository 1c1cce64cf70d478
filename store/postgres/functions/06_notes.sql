-- Stores what handlers recorded in attempts whose leases are open. This is checked again once the rows of the notes are
-- locked. If an attempt has ended meanwhile, the function fails and stores nothing, and the caller tries the notes one
-- by one.
create function tusk_fn.write_notes(_ids uuid[], _tokens uuid[], _progress text[], _outputs bytea[], _logs text[])
returns void language plpgsql as $$
declare
  _written uuid[];
begin
  with written as (
    insert into tusk.note as o (id, progress, output, logs)
    select x.id, x.progress::jsonb, x.output, x.logs::jsonb
    from unnest(_ids, _tokens, _progress, _outputs, _logs) x(id, token, progress, output, logs)
    where exists (select from tusk_fn.running r where r.token = x.token and r.id = x.id)
    on conflict (id) do update
    set progress = coalesce(excluded.progress, o.progress), output = coalesce(excluded.output, o.output),
      logs = case when excluded.logs is null then o.logs else coalesce(o.logs, '[]') || excluded.logs end
    returning o.id)
  select array_agg(w.id) into _written from written w;
  if exists (
    select from unnest(_ids, _tokens) x(id, token)
    where x.id = any(_written) and not exists (select from tusk_fn.running r where r.token = x.token
      and r.id = x.id)) then
    raise lock_not_available using message = 'an attempt ended while its note was written';
  end if;
end $$;

-- Like write_notes, for callers that must not wait for a user's transaction, which may hold the note of a task that it
-- ends. Returns the places of the notes that were not stored because they are held.
create function tusk_fn.write_free_notes(_ids uuid[], _tokens uuid[], _progress text[], _outputs bytea[],
  _logs text[]) returns int[]
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '20ms' as $$
declare
  _held  int[] := '{}';
  _begun timestamptz := clock_timestamp();
begin
  begin
    perform tusk_fn.write_notes(_ids, _tokens, _progress, _outputs, _logs);
    return _held;
  exception when lock_not_available then
  end;
  for i in 1 .. cardinality(_ids) loop
    begin
      if clock_timestamp() - _begun > interval '300 ms' then
        _held := _held || i; -- it was not tried
        continue;
      end if;
      perform tusk_fn.write_notes(_ids[i:i], _tokens[i:i], _progress[i:i], _outputs[i:i], _logs[i:i]);
    exception when lock_not_available then
      _held := _held || i;
    end;
  end loop;
  return _held;
end $$;
