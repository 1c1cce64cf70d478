-- name: chores
-- What a leader of term $1 has to do in ledger {i}, and which of the kinds $3 have records. Letters to other ledgers
-- wait in lane $2, which is null if there are no others. The statements of several ledgers are combined.
select {i} as i,
  exists ({leads}),
  (select (extract(epoch from greatest(w.run_at - clock_timestamp(), interval '0')) * 1000000::numeric)::bigint
    from tusk.waiting w
   where w.state <> 2 and w.run_at < 'infinity' order by w.run_at, w.n limit 1),
  exists (select from tusk.doubt),
  exists (select from tusk.unready w where w.line is not null) or exists (select from tusk.turn),
  exists (
    select from tusk.worker w
    where not w.dead and (w.expires_at <= clock_timestamp() or w.beat_at > clock_timestamp() + interval '1 second'
        or w.attended = pg_catalog.pg_postmaster_start_time() and w.late_at <= clock_timestamp() + interval '1 second')
      or w.dead and greatest(w.beat_at, w.left_at, w.suspected_at) > clock_timestamp() - interval '1 minute'),
  $2::bigint is not null and (
    exists (
      select from tusk.far f
      where f.state = 9 and f.heard_at > clock_timestamp() - interval '1 hour'
        or exists (select from tusk.open_need x where x.parent = f.id))
    or exists (select from tusk.waiting w where w.lane = $2 and w.state = 1 and w.line is null)),
  1 + coalesce((select o.xid::text::bigint from tusk.outcome o order by o.xid desc limit 1), 0)
    + coalesce(pg_catalog.pg_sequence_last_value('tusk.task_n'), 0),
  (select coalesce(string_agg(k.kind, ' '), '') from pg_catalog.unnest($3::text[]) k(kind)
   where exists (select from tusk.record r where r.kind = k.kind)),
  clock_timestamp()

-- name: leads
-- Has a row if term $1 is running.
select from tusk.leader l where l.term = $1 and l.id is not null and l.expires_at > clock_timestamp()

-- name: renew
-- Extends the running term $1 of candidate $4 by $5, together with the query for work. The transaction does not wait
-- for the disk, because a crash that undoes it only makes the term shorter.
with renewed as (
  update tusk.leader x set expires_at = c.now + $5::float8 * interval '1 us', renewed_at = c.now
  from (select clock_timestamp() as now where set_config('synchronous_commit', 'off', true) is not null) c
  where x.id = $4 and x.term = $1 and x.expires_at > c.now
  returning x.term)
