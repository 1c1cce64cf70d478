-- A worker's heartbeat. Returns the attempts to stop. It locks nothing that a user's transaction may hold.
create function tusk_fn.beat(_id uuid, _about jsonb, _ttl bigint, _every bigint, _seq bigint default 0,
  _seen bigint default 0, _holds uuid[] default '{}')
returns table (id uuid, token uuid) language plpgsql set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  _now timestamptz := clock_timestamp();
  w    tusk.worker;
begin
  perform tusk_fn.need_read_committed();
  if _ttl <= 0 then
    update tusk.worker x set dead = true, left_at = _now where x.id = _id and not x.dead and (_seq = 0 or _seq > x.seq);
  else
    insert into tusk.worker as x (id, about, started_at, beat_at, late_at, expires_at, dead, seq, holds, program)
    values (_id, _about, _now, _now, _now + _every * interval '1 us' * 1.5, _now + _ttl * interval '1 us', false, _seq,
      _holds, 'tusk_fn')
    on conflict (id) do update
    set about = excluded.about, beat_at = excluded.beat_at, late_at = excluded.late_at,
      expires_at = excluded.expires_at, suspected_at = null, seq = excluded.seq, holds = excluded.holds,
      program = excluded.program,
      since = case when _seq = 0 then null when _seen > 0 and _seen = x.seq then x.beat_at else x.since end
    where not x.dead and (_seq = 0 or _seq > x.seq);
  end if;
  if not found then
    select * into w from tusk.worker x where x.id = _id;
    if w.dead and (_ttl > 0 or w.left_at is null) then
      raise exception 'the worker is dead' using errcode = 'TK001';
    elsif not w.dead then
      raise exception 'a later beat was seen' using errcode = 'TK009';
    end if;
  end if;
  if _ttl <= 0 or not exists (select from tusk.stop) then
    return;
  end if;
  return query
  select s.id, s.token from tusk.stop s
  cross join lateral (select from tusk_fn.running r where r.token = s.token and r.id = s.id
    and r.worker = _id offset 0) r;
end $$;
