create schema if not exists tusk_net;

-- Always empty: its shards only identify nodes. A slot is a value whose shard lies on the node in question.
create table if not exists tusk_net.place (slot int primary key);

select create_distributed_table('tusk_net.place', 'slot', shard_count := 64, colocate_with := 'none')
where not exists (select from pg_dist_partition where logicalrelid = 'tusk_net.place'::regclass);

-- Always empty, too: it identifies the coordinator, which has no shards.
create table if not exists tusk_net.mark (i int);

select citus_add_local_table_to_metadata('tusk_net.mark')
where not exists (select from pg_dist_partition where logicalrelid = 'tusk_net.mark'::regclass);

-- The addresses at which clients reach a node, if they differ from pg_dist_node.
create table if not exists tusk_net.address (groupid int primary key, hosts text not null);

select create_reference_table('tusk_net.address')
where not exists (select from pg_dist_partition where logicalrelid = 'tusk_net.address'::regclass);

-- Citus delegates a call only if it is a statement of its own. Any other call would write on the node where it happens
-- to run.
create or replace function tusk_net.need_node(_slot int) returns void language plpgsql as $$
begin
  if not exists (
    select from pg_dist_placement p join pg_dist_local_group g using (groupid)
    where p.shardid = get_shard_id_for_distribution_column('tusk_net.place', _slot))
  then
    raise exception
      'the call was not passed on to the node of slot %: make it in the transaction itself, not in a function', _slot
    using errcode = 'feature_not_supported';
  end if;
end $$;

-- Runs a query on the node of a slot, in the caller's transaction. Each row is returned as a JSON array of its values,
-- as texts.
create or replace function tusk_net.ask(_slot int, _query text) returns setof text language plpgsql as $$
declare
  q record;
begin
  perform tusk_net.need_node(_slot);
  for q in execute _query loop -- a subquery could not write
    return next (
      select json_agg(v.value order by v.place) from json_each_text(row_to_json(q))
        with ordinality v(name, value, place))::text;
  end loop;
end $$;

-- Runs a statement that returns no rows on the node of a slot, in the caller's transaction.
create or replace function tusk_net.run(_slot int, _statement text) returns void language plpgsql as $$
begin
  perform tusk_net.need_node(_slot);
  execute _statement;
end $$;

-- Only roles that may write to all ledgers should be able to call these functions, which run with the caller's rights.
revoke execute on function tusk_net.ask(int, text), tusk_net.run(int, text) from public;

select create_distributed_function('tusk_net.ask(int, text)', '_slot', colocate_with := 'tusk_net.place',
  force_delegation := true);

select create_distributed_function('tusk_net.run(int, text)', '_slot', colocate_with := 'tusk_net.place',
  force_delegation := true);

-- Exists if everything above exists.
create table if not exists tusk_net.ready (i int);
