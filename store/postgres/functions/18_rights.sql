-- A role that can create functions in a schema of a session's search path could have the session run them in place of
-- PostgreSQL's. So every function that is called from outside has a search path of its own. The functions that these
-- call need not set it again, and SQL functions that are inlined are bound when they are created. Procedures that
-- commit set the path themselves, and qualify the names in the same expression, which is parsed before. ids_of and
-- place_of run for each row, and qualify every name.
do $$
declare
  _name text;
begin
  foreach _name in array array['add_free_notes', 'add_notes', 'add_segment', 'admit_all', 'at_home', 'attend', 'beat',
    'candidate', 'catalogue_next', 'claim', 'counts', 'children_to_tell', 'close_needs', 'deliver', 'doubt_children',
    'drop_segment', 'due_dead', 'due_flushes', 'ended', 'few_dead', 'few_line', 'few_waiting', 'finish', 'finish_lease',
    'finish_more', 'finish_plain', 'finish_turns', 'finish_tx', 'finish_tx_more', 'first_segments', 'forget_lanes',
    'forget_tasks', 'give_back', 'grant_rights', 'grant_turns', 'hear', 'hold_lead', 'known_of', 'lanes_with_rows',
    'lock_doomed', 'lock_tasks', 'name_lanes', 'name_lost_lanes', 'needed', 'needs_others', 'note_changes', 'prune',
    'publish', 'put', 'put_needing', 'put_tasks', 'rebase', 'release_dead', 'release_flushes', 'rescue', 'restore',
    'settle_children', 'states_of', 'tasks_of', 'turns', 'turns_since', 'unattend', 'unfinished', 'write_free_notes',
    'write_keys', 'write_needs', 'write_notes']
  loop
    execute format('alter function tusk_fn.%I set search_path = pg_catalog, pg_temp', _name);
  end loop;
  foreach _name in array array['block_of', 'ids_between', 'id_after', 'short_kind', 'short_tags', 'lane_of',
    'priority_of', 'queue_of', 'last_n', 'places_of', 'unclaimed', 'rows_of', 'flushes_of', 'end_of', 'flush_of',
    'spot_of', 'state_of', 'find', 'worker_lock']
  loop
    execute regexp_replace(pg_get_functiondef(format('tusk_fn.%I', _name)::regproc),
      'AS \$function\$(.*)\$function\$', 'begin atomic \1; end');
  end loop;
end $$;

-- The leader makes and drops segments with the rights of their owner.
alter function tusk_fn.add_segment security definer;

alter function tusk_fn.drop_segment security definer;

-- Only the owner has rights, and grants them: see tusk db roles.
revoke execute on all routines in schema tusk_fn from public;
