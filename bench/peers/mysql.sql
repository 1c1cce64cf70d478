-- The founding article's table and statements for MySQL, in autocommit.

-- name: table
create table queue (
    id bigint not null auto_increment primary key,
    status int not null default 0,
    owner bigint not null default 0,
    ts timestamp not null default current_timestamp,
    payload text not null,
    key (owner, status, ts)
) engine = innodb

-- name: produce
insert into queue (payload) values

-- name: claim
update queue set owner = connection_id(), ts = now() where owner = 0 and status = 0 order by ts limit %d

-- name: read
select id, payload from queue where owner = connection_id() and status = 0

-- name: done
update queue set status = 1, owner = 0, ts = now() where id in (%s)

-- name: left
select count(*) from queue where status = 0
