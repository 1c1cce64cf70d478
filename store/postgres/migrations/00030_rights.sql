-- up
set local lock_timeout = '5s';

-- Drops a table of the log that nothing needs any more, and says whether there was one. As
-- for a new segment, the log has to be nobody's for a moment.
create function tusk.drop_segment(_term bigint) returns boolean language plpgsql set jit = off as $$
declare
  _parent text;
  _name   text;
  _pause  int;
begin
  perform tusk.hold_lead(_term);
  select s.parent, s.name into _parent, _name from tusk.spent_segment() s;
  if _name is null then
    return false;
  end if;
  if exists (select from pg_inherits i where i.inhrelid = to_regclass(format('tusk.%I', _name))) then
    _pause := tusk.pause_of_log(2000);
    if _pause is null then
      return false;
    end if;
    perform set_config('lock_timeout', (50 + 2 * _pause) || 'ms', true);
    execute format('alter table tusk.%I detach partition tusk.%I', _parent, _name);
  end if;
  execute format('drop table if exists tusk.%I', _name);
  perform tusk.forget_segment(_name);
  return true;
end $$;

-- Forgets a segment, or a part of one, and what the catalogue says of it.
create function tusk.forget_segment(_name text) returns void language sql as $$
  with part as (delete from tusk.segment_part where name = _name returning segment, queues),
  whole as (delete from tusk.segment where name = _name returning hi),
  gone as (
    select w.hi, null::bigint[] as queues, '{}'::bigint[] as others from whole w
    union all
    select s.hi, p.queues,
      array(select unnest(x.queues) from tusk.segment_part x where x.segment = p.segment and x.name <> _name and p.queues is null)
    from part p join tusk.segment s on s.name = p.segment)
  delete from tusk.catalogue c using gone g
  where c.hi <= g.hi and c.lo >= coalesce((select s.hi from tusk.segment s where s.hi < g.hi order by s.hi desc limit 1), '0')
    and (g.queues is null or c.lane >> 16 = any(g.queues)) and c.lane >> 16 <> all(g.others)
$$;

-- Whoever may create functions in a schema that a session looks into could have it run
-- others than PostgreSQL's. So functions that are called from outside look into nothing
-- else; those that they call do not pay for it again, and those in SQL that become part of
-- a statement are bound when they are made. exchange, which commits, sets its own.
do $$
declare
  _name text;
begin
  foreach _name in array array['add_segment', 'admit_all', 'at_home', 'attend', 'beat', 'candidate', 'catalogue_next', 'claim', 'counts',
    'drop_segment', 'edit', 'few_dead', 'few_waiting', 'finish', 'finish_lease', 'finish_more', 'finish_plain', 'finish_tx', 'finish_tx_more',
    'forget_lanes', 'grant_turns', 'hold_lead', 'name_lanes', 'name_lost_lanes', 'prune', 'put', 'put_needing', 'rebase', 'rescue', 'settle_children', 'turns',
    'unattend', 'unfinished', 'write_free_notes', 'write_notes']
  loop
    execute format('alter function tusk.%I set search_path = pg_catalog, pg_temp', _name);
  end loop;
  foreach _name in array array['block_of', 'ids_between', 'id_after', 'short_kind', 'short_tags', 'lane_of', 'priority_of', 'queue_of', 'last_n',
    'places_of', 'unclaimed', 'rows_of', 'nodes_of', 'flush_of', 'state_of', 'find']
  loop
    execute regexp_replace(pg_get_functiondef(format('tusk.%I', _name)::regproc), 'AS \$function\$(.*)\$function\$', 'begin atomic \1; end');
  end loop;
end $$;

-- Segments are made and dropped by whoever leads, with the rights of their owner.
alter function tusk.add_segment security definer;
alter function tusk.drop_segment security definer;

-- Nobody has rights but the owner, and those to whom he gives them: see tusk db roles.
do $$ begin
  execute format('revoke execute on all routines in schema %I from public',
    (select n.nspname from pg_namespace n join pg_class c on c.relnamespace = n.oid where c.oid = 'tusk.log'::regclass));
end $$;

-- down
set local lock_timeout = '5s';
drop function tusk.drop_segment, tusk.forget_segment;
