-- up
set local lock_timeout = '5s';

-- What stands in a stretch of the log, those with xids from lo on and below hi: the
-- tasks of a lane by kind, and again by each of their tags, newest first. The leader
-- writes it after the fact, so that no enqueue pays for an index. It may name tasks
-- that have changed or gone since; it never leaves one out. Of packs it has their places
-- in the lane and no ids.
create table tusk.catalogue (
  lane     bigint      not null,
  kind     text collate "C", -- null: by tag
  tag      text collate "C", -- null: by kind
  lo       xid8        not null,
  hi       xid8        not null,
  newest   uuid        not null,
  oldest   uuid        not null,
  from_at  timestamptz not null, -- when they were enqueued
  until_at timestamptz not null,
  tasks    int         not null,
  ids      uuid[],     -- null: of packs
  xids     xid8[],
  ns       bigint[]    -- up to 255 more are those of tasks that were in the pack
);
alter table tusk.catalogue alter ids set storage external;
create index catalogue_newest on tusk.catalogue (newest) where tag is null;
create index catalogue_kind on tusk.catalogue (kind, newest) where tag is null;
create index catalogue_queue on tusk.catalogue ((lane >> 16), newest) where tag is null;
create index catalogue_tag on tusk.catalogue (tag, newest) where tag is not null;

-- The log's xids below upto are in the catalogue; added is how many rows the lanes
-- had got by then, about.
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
