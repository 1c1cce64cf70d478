-- The table that gue v5 works on, as its documentation describes it.

create table gue_jobs (
    job_id      text primary key,
    priority    smallint not null,
    run_at      timestamptz not null,
    job_type    text not null,
    args        bytea not null,
    error_count integer not null default 0,
    last_error  text,
    queue       text not null,
    created_at  timestamptz not null,
    updated_at  timestamptz not null
);
create index idx_gue_jobs_selector on gue_jobs (queue, run_at, priority);
