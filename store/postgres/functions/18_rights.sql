-- A role that can create functions in a schema of a session's search path could make the session run them instead of
-- PostgreSQL's. So every function that is called from outside has a search path of its own. The functions that these
-- call need not set it again, and SQL functions that are inlined are bound when they are created. Procedures that
-- commit set the path themselves. They qualify the names in the expression that sets it, which is parsed before the
-- path takes effect. ids_of, place_of and queue_of run for each row, and qualify every name or type.
do $$
declare
  _name text;
begin
  foreach _name in array array['add_leased', 'add_segment', 'beat', 'begin_anew', 'claim',
    'close', 'doubt_children', 'drop_segment', 'few', 'finish', 'finish_lease',
    'finish_more', 'finish_plain', 'finish_tx', 'forget_tasks', 'grant_rights',
    'hold_lead', 'lanes_with_rows', 'lead', 'lock_doomed', 'lock_tasks', 'name_lanes', 'over',
    'publish', 'put', 'put_needing', 'release_dead', 'release_flushes', 'settle', 'states_of',
    'write_notes']
  loop
    execute format('alter function tusk_fn.%I set search_path = pg_catalog, pg_temp', _name);
  end loop;
  foreach _name in array array['block_of', 'ids_between', 'id_after', 'short_tags', 'lane_of', 'tenant_key',
    'last_n', 'places_of', 'unclaimed', 'rows_of', 'flushes_of', 'end_of',
    'flush_of', 'spot_of', 'may_go', 'state_of', 'find', 'try_lane']
  loop
    execute regexp_replace(pg_get_functiondef(format('tusk_fn.%I', _name)::regproc),
      'AS \$function\$(.*)\$function\$', 'begin atomic \1; end');
  end loop;
end $$;

-- The leader makes and drops segments with the rights of the functions' owner. With its own rights, it deletes the rows
-- of segment, segment_part and catalogue that describe a dropped table.
alter function tusk_fn.add_segment security definer;

alter function tusk_fn.drop_segment security definer;

-- At first only the owner has rights. To grant them to others, see tusk db roles.
revoke execute on all routines in schema tusk_fn from public;
