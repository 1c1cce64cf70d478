-- up
set local lock_timeout = '5s';

-- The contents of a stretch of the log: the rows with xids from lo up to, but not including, hi.
-- It lists the tasks of a lane by kind, and again by each of their tags, newest first. The leader
-- writes it later, so that no enqueue pays for an index. It may name tasks that have changed or
-- been deleted since, but it never omits one. Packs are listed by their places in the lane, without ids.
create table tusk.catalogue (
  lane     bigint      not null,
  kind     text collate "C", -- null if the row lists tasks by tag
  tag      text collate "C", -- null if the row lists tasks by kind
  lo       xid8        not null,
  hi       xid8        not null,
  newest   uuid        not null,
  oldest   uuid        not null,
  from_at  timestamptz not null, -- when the first of them was enqueued
  until_at timestamptz not null,
  tasks    int         not null,
  ids      uuid[],     -- null if the row lists packs
  xids     xid8[],
  ns       bigint[]    -- the tasks of a pack have the numbers after its own, up to 255 more
);
alter table tusk.catalogue alter ids set storage external;
create index catalogue_newest on tusk.catalogue (newest) where tag is null;
create index catalogue_kind on tusk.catalogue (kind, newest) where tag is null;
create index catalogue_queue on tusk.catalogue ((lane >> 16), newest) where tag is null;
create index catalogue_tag on tusk.catalogue (tag, newest) where tag is not null;

-- The log's xids below upto are in the catalogue. added is about how many tasks had been added to
-- the lanes by then.
create table tusk.catalogue_end (
  one   boolean not null primary key default true check (one),
  upto  xid8    not null,
  added bigint  not null
);
insert into tusk.catalogue_end (upto, added)
select coalesce(min(t.xid::text::bigint)::text::xid8, pg_current_xact_id()), 0 from tusk.log t;

-- down
set local lock_timeout = '5s';
drop table tusk.catalogue_end, tusk.catalogue;
