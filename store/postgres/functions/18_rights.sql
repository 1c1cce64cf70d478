-- Whoever may create functions in a schema that a session looks into could have it run
-- others than PostgreSQL's. So functions that are called from outside look into nothing
-- else; those that they call do not pay for it again, and those in SQL that become part of
-- a statement are bound when they are made. Procedures that commit set their own, and name
-- the schema of what stands beside that, which is parsed before. ids_of and place_of, which
-- are called for each row, leave nothing to the path.
do $$
declare
  _name text;
begin
  foreach _name in array array['add_free_notes', 'add_notes', 'add_segment', 'admit_all', 'at_home', 'attend', 'beat',
    'candidate', 'catalogue_next', 'claim', 'counts', 'children_to_tell', 'close_needs', 'deliver', 'doubt_children',
    'drop_segment', 'due_dead', 'due_flushes', 'ended', 'few_dead', 'few_waiting', 'finish', 'finish_lease',
    'finish_more', 'finish_plain', 'finish_turns', 'finish_tx', 'finish_tx_more', 'first_segments', 'forget_lanes',
    'forget_tasks', 'give_back', 'grant_rights', 'grant_turns', 'hear', 'hold_lead', 'known_of', 'lanes_with_rows',
    'lock_tasks', 'name_lanes', 'name_lost_lanes', 'needed', 'needs_others', 'note_changes', 'prune', 'publish', 'put',
    'put_needing', 'put_tasks', 'rebase', 'release_dead', 'release_flushes', 'rescue', 'restore', 'settle_children',
    'states_of', 'tasks_of', 'turns', 'turns_since', 'unattend', 'unfinished', 'write_free_notes', 'write_keys',
    'write_needs', 'write_notes']
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

-- Segments are made and dropped by whoever leads, with the rights of their owner.
alter function tusk_fn.add_segment security definer;

alter function tusk_fn.drop_segment security definer;

-- Nobody has rights but the owner, and those to whom he gives them: see tusk db roles.
revoke execute on all routines in schema tusk_fn from public;
